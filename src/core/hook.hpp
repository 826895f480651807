#pragma once

// A place where the program calls a function that somebody else has put there. Owns the list of those who have. Whoever
// puts a function there does so for a scope, and in whatever order scopes end, nobody ends another one's. Does not
// guard against threads: no scope begins or ends while another thread may come to the place.

#include <functional>
#include <utility>

namespace trainstone {

template <class Signature>
class Hook {
public:
  /// While it lives, the place calls `function` (if that is empty, nothing), unless a later one lives.
  class Scoped {
  public:
    Scoped(Hook& hook, std::function<Signature> function)
        : m_hook(hook), m_function(std::move(function)), m_before(std::exchange(hook.m_latest, this)) {}
    Scoped(Scoped const&) = delete;
    Scoped& operator=(Scoped const&) = delete;
    ~Scoped() {
      Scoped** place = &m_hook.m_latest;
      while (*place != this) place = &(*place)->m_before;
      *place = m_before;
    }

  private:
    friend class Hook;
    Hook& m_hook;
    std::function<Signature> m_function;
    Scoped* m_before;
  };

  constexpr Hook() = default;
  Hook(Hook const&) = delete;
  Hook& operator=(Hook const&) = delete;

  /// Whether there is something to call.
  explicit operator bool() const { return m_latest && m_latest->m_function; }
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) const {
    return m_latest->m_function(std::forward<Arguments>(arguments)...);
  }

private:
  Scoped* m_latest = nullptr;
};

} // namespace trainstone
