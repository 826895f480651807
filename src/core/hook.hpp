#pragma once

// A hook: a place where the program calls a function that other code has registered. Owns the list of registered
// functions. A function is registered for a scope. Scopes may end in any order, and the end of a scope removes only its
// own function. Is not thread-safe: no scope may begin or end while another thread may call the hook.

#include <functional>
#include <utility>

namespace trainstone {

template <class Signature>
class Hook {
public:
  /// While it lives, the hook calls `function` (nothing if it is empty), unless a later registration lives.
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
