#include "comm/schedule.hpp"

namespace trainstone {

std::string_view to_string(Collective collective) {
  switch (collective) {
  case Collective::all_reduce: return "all_reduce";
  }
  return "unknown";
}

std::string_view to_string(Algorithm algorithm) {
  switch (algorithm) {
  case Algorithm::ring: return "ring";
  }
  return "unknown";
}

std::string_view to_string(Action action) {
  switch (action) {
  case Action::send: return "send";
  case Action::receive: return "receive";
  case Action::reduce: return "reduce";
  case Action::copy: return "copy";
  }
  return "unknown";
}

std::string_view to_string(BufferId buffer) {
  switch (buffer) {
  case BufferId::data: return "data";
  case BufferId::scratch: return "scratch";
  }
  return "unknown";
}

} // namespace trainstone
