// What the run ran on. Part of result.hpp.

#include "result/result.hpp"

#include "core/json_text.hpp"

#include <cstdlib>
#include <fstream>
#include <sys/utsname.h>
#include <unistd.h>

namespace trainstone {

namespace {

/// The only variables that go into a result: they change speed or identify the job, and hold no secrets.
constexpr char const* listed_variables[] = {"OMP_NUM_THREADS",
                                            "OMP_PROC_BIND",
                                            "OMP_PLACES",
                                            "KOKKOS_NUM_THREADS",
                                            "OPENBLAS_NUM_THREADS",
                                            "ONEDNN_MAX_CPU_ISA",
                                            "UCX_TLS",
                                            "FI_PROVIDER",
                                            "MPIR_CVAR_CH4_NETMOD",
                                            "TRAINSTONE_SET",
                                            "TRAINSTONE_VARIANT",
                                            "SLURM_JOB_ID",
                                            "SLURM_JOB_PARTITION",
                                            "SLURM_JOB_NUM_NODES",
                                            "SLURM_NTASKS",
                                            "SLURM_CPUS_PER_TASK",
                                            "SLURM_RESTART_COUNT",
                                            "PBS_JOBID"};

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    std::size_t const colon = line.find(':');
    if (line.compare(0, 10, "model name") == 0 && colon != std::string::npos && colon + 2 < line.size()) {
      return line.substr(colon + 2);
    }
  }
  utsname system{};
  return uname(&system) == 0 ? system.machine : "unknown";
}

} // namespace

std::string describe_compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

MachineInfo describe_machine() {
  MachineInfo machine;
  machine.cpu = cpu_name();
  machine.memory_bytes =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  for (char const* name : listed_variables) {
    if (char const* const value = std::getenv(name)) machine.environment[name] = utf8_text(value);
  }
  return machine;
}

} // namespace trainstone
