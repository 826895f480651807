#pragma once

// How messages find each other: the sends and the receives of a channel, which is one rank's way to another, meet in
// the order in which they are posted. Owns the halves that wait. For the simulator alone.

#include <cstddef>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

namespace trainstone::Impl {

template <class Key, class Half, class Hash = std::hash<Key>>
class Channels {
public:
  /// The half that this one makes a message with: the oldest of the other kind in its channel. If there is none, this
  /// one waits for it.
  std::optional<Half> meet(Key const& key, bool sends, Half const& half) {
    auto const [entry, is_new] = m_channels.try_emplace(key);
    Channel& channel = entry->second;
    if (is_new) {
      channel.oldest = half;
      channel.sends = sends;
      return {};
    }
    if (channel.sends == sends) {
      channel.others.push_back(half);
      return {};
    }
    Half const oldest = channel.oldest;
    if (channel.first_other < channel.others.size())
      channel.oldest = channel.others[channel.first_other++];
    else
      m_channels.erase(entry); // most channels are used once
    return oldest;
  }

  /// All that wait: of a channel the oldest first.
  std::vector<Half> waiting() const {
    std::vector<Half> all;
    for (auto const& [key, channel] : m_channels) {
      all.push_back(channel.oldest);
      for (std::size_t i = channel.first_other; i < channel.others.size(); ++i) all.push_back(channel.others[i]);
    }
    return all;
  }

private:
  struct Channel { // all sends or all receives; mostly there is one, which then needs no memory of its own
    Half oldest{};
    bool sends = false;
    std::vector<Half> others;
    std::size_t first_other = 0;
  };

  std::unordered_map<Key, Channel, Hash> m_channels;
};

} // namespace trainstone::Impl
