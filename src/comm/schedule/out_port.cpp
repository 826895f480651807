#include "comm/schedule/out_port.hpp"

#include <algorithm>

namespace trainstone {

OutPort::Time OutPort::send(Time now, std::uint64_t bytes) {
  std::chrono::duration<double> const busy(m_network.seconds(static_cast<double>(bytes)));
  std::lock_guard const lock(m_mutex);
  m_free = std::max(now, m_free) + std::chrono::ceil<Time::duration>(busy);
  return m_free;
}

} // namespace trainstone
