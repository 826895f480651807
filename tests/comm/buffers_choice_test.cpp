// What --buffers means in builds for hosts and for devices.

#include "comm/measurement/buffers_choice.hpp"

#include "comm/execution/buffers_start.hpp"
#include "core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace trainstone;
using Catch::Matchers::ContainsSubstring;

namespace {

DeviceFindings const proved{{true, "they arrive"}, {false, "too far"}};
DeviceFindings const unproved{{false, "the library does not say so"}, {false, "too far"}};
DeviceFindings const reached{{true, "they arrive"}, {true, "in reach"}};

std::string refusal_of(std::string_view name, bool kernels_on_host, DeviceFindings const& found) {
  try {
    choose_measured_buffers(name, kernels_on_host, found);
  } catch (InputError const& error) {
    return error.what();
  }
  return "";
}

} // namespace

TEST_CASE("unasked, hosts measure in shared memory, and devices give MPI their memory where that is proved",
          "[comm][buffers]") {
  CHECK(choose_measured_buffers("", true, unproved).name == "shared");
  CHECK(choose_measured_buffers("", false, proved).name == "device");
  CHECK(choose_measured_buffers("", false, unproved).name == "staged");
}

TEST_CASE("the word of a choice says where data lies and what MPI is given", "[comm][buffers]") {
  CHECK(choose_measured_buffers("shared", true, unproved).shared_memory);
  CHECK(choose_measured_buffers("shared", true, unproved).messages == MessageBuffers::host);
  CHECK_FALSE(choose_measured_buffers("private", true, unproved).shared_memory);
  CHECK(choose_measured_buffers("private", true, unproved).messages == MessageBuffers::host);
  for (bool const kernels_on_host : {true, false}) {
    CHECK_FALSE(choose_measured_buffers("staged", kernels_on_host, proved).shared_memory);
    CHECK(choose_measured_buffers("staged", kernels_on_host, proved).messages == MessageBuffers::staged);
  }
  CHECK_FALSE(choose_measured_buffers("device", false, proved).shared_memory);
  CHECK(choose_measured_buffers("device", false, reached).shared_memory);
  CHECK(choose_measured_buffers("staged", false, reached).shared_memory);
  CHECK_FALSE(choose_measured_buffers("staged", true, reached).shared_memory);
  CHECK(choose_measured_buffers("device", false, proved).messages == MessageBuffers::device);
}

TEST_CASE("buffers that a build does not have are refused with the reason and those that it has", "[comm][buffers]") {
  CHECK_THAT(refusal_of("pinned", true, unproved),
             ContainsSubstring("there is no \"pinned\"; there is: shared, private, staged"));
  CHECK_THAT(refusal_of("device", true, unproved),
             ContainsSubstring("--buffers device: the library does not say so; there is: shared, private, staged"));
  CHECK_THAT(refusal_of("device", false, unproved),
             ContainsSubstring("--buffers device: the library does not say so; there is: staged"));
  for (std::string_view const name : {"shared", "private"})
    CHECK_THAT(refusal_of(name, false, proved),
               ContainsSubstring("kernels work on a device's memory") && ContainsSubstring("there is: device, staged"));
}
