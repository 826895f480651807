"""Hosts on one machine, for tests of what crosses a network. A host is a network and a UTS namespace: it has a name, an
address and a connection of its own, and it shares no memory with other hosts, because MPI is told to use TCP alone. The
connections (veth pairs) end in a switch, which is a namespace with a bridge. A rate limits each direction of each
connection, by tc.

Needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN, iproute2 and util-linux. NotPossible says what a machine lacks.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TCP_ALONE = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0", "UCX_MEM_EVENTS": "n"}


class NotPossible(Exception):
    """This machine cannot have such hosts."""


def call(*command):
    """Standard output. NotPossible if the command fails: all of them only set up namespaces."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPossible(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def require_tools():
    missing = [tool for tool in ("ip", "tc", "nsenter", "unshare") if not shutil.which(tool)]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing iproute2 and util-linux on this machine, for {', '.join(missing)}", flush=True)
        subprocess.run(["apt-get", "install", "-y", "iproute2", "util-linux"], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
        missing = [tool for tool in missing if not shutil.which(tool)]
    if missing:
        raise NotPossible(f"no {', '.join(missing)}: packages iproute2 and util-linux have them")


class Namespace:
    """Lives as long as the process that holds it."""

    def __init__(self, name):
        self.name = name
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "sh", "-c", f"hostname {name} && echo ready && exec sleep infinity"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            reason = self.holder.communicate()[1].strip()
            raise NotPossible(f"no namespace of network and host name: {reason}")

    def inside(self, *command):
        return ["nsenter", "--target", str(self.holder.pid), "--net", "--uts", *command]

    def call(self, *command):
        return call(*self.inside(*command))

    def close(self):
        self.holder.kill()
        self.holder.communicate()


class Host(Namespace):
    def __init__(self, number, switch, rate):
        super().__init__(f"host{number}")
        self.address = f"10.77.0.{number + 1}"
        self.processes = []
        try:
            self.connect(f"port{number}", switch, rate)
        except NotPossible:
            self.close()
            raise

    def connect(self, port, switch, rate):
        switch.call("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        switch.call("ip", "link", "set", port, "master", "switch", "up")
        self.call("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self.call("ip", "link", "set", device, "up")
        if rate:
            self.limit(self, "eth0", rate)
            self.limit(switch, port, rate)

    @staticmethod
    def limit(namespace, device, rate):
        """A queue of a second at most: TCP loses no packets, as in networks of HPC centres."""
        namespace.call("tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{round(8 * rate)}bit",
                       "burst", str(max(16384, round(rate / 250))), "latency", "1s")

    def sent_bytes(self):
        """By its connection since it was made, headers of packets included."""
        return json.loads(self.call("ip", "-json", "-statistics", "link", "show", "eth0"))[0]["stats64"]["tx"]["bytes"]

    def start(self, command, **options):
        process = subprocess.Popen(self.inside(*command), **options)
        self.processes.append(process)
        return process

    def _is_here(self, process):
        try:
            return os.readlink(f"/proc/{process}/ns/net") == os.readlink(f"/proc/{self.holder.pid}/ns/net")
        except OSError:
            return False

    def kill(self):
        """All processes of this host at once, as if the power failed. The host itself stays."""
        while here := [process for process in map(int, filter(str.isdigit, os.listdir("/proc")))
                       if process != self.holder.pid and self._is_here(process)]:
            for process in here:  # some have started others meanwhile
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for process in self.processes:
            process.wait()


class Running:
    """A program on ranks of some hosts. Its launcher runs on the first one."""

    def __init__(self, hosts, ranks_per_host, command, log):
        self.log = log
        environment = {**os.environ, **TCP_ALONE}
        names = ",".join(f"{host.address}:{ranks_per_host}" for host in hosts)
        launcher = [str(ROOT / "ci/env"), "mpiexec", "-launcher", "manual", "-localhost", hosts[0].address, "-hosts", names,
                    "-n", str(len(hosts) * ranks_per_host), *command]
        self.launcher = hosts[0].start(launcher, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        self.text = []
        for line in self.launcher.stdout:
            if line.startswith("HYDRA_LAUNCH_END"):
                break
            proxy = re.match(r"HYDRA_LAUNCH: (.*--proxy-id (\d+).*)", line)
            if not proxy:
                self.text.append(line)
                continue
            hosts[int(proxy[2])].start([str(ROOT / "ci/env"), *proxy[1].split()], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env=environment)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.launcher.stdout:
            self.text.append(line)
        self.log.write_text("".join(self.text))

    def wait_until(self, condition, seconds):
        """Until condition() holds. AssertionError if it does not in time, or if the program ends before."""
        end = time.monotonic() + seconds
        while not condition():
            assert self.launcher.poll() is None, f"ended too early:\n{''.join(self.text)}"
            assert time.monotonic() < end, f"nothing within {seconds} s:\n{''.join(self.text)}"
            time.sleep(0.05)

    def wait(self, seconds):
        """The launcher's exit code, and all that was printed."""
        try:
            code = self.launcher.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        if code is not None:
            self.reader.join()
        return code, "".join(self.text)


class Hosts:
    """`count` hosts. \\param rate bytes/s of each direction of each connection; None: as fast as the machine"""

    def __init__(self, count, rate=None):
        require_tools()
        self.switch = None
        self.hosts = []
        try:
            self.switch = Namespace("switch")
            self.switch.call("ip", "link", "add", "switch", "type", "bridge")
            self.switch.call("ip", "link", "set", "switch", "up")
            for number in range(count):
                self.hosts.append(Host(number, self.switch, rate))
        except NotPossible:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getitem__(self, number):
        return self.hosts[number]

    def run(self, ranks_per_host, command, log, hosts=None):
        return Running(hosts or self.hosts, ranks_per_host, command, log)

    def close(self):
        for host in self.hosts:
            host.kill()
            host.close()
        if self.switch:
            self.switch.close()
