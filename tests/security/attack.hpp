#pragma once

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <random>
#include <utility>
#include <vector>

namespace cordma::test {

/// A change that somebody on the path makes to the bytes of one side.
enum class attack { flip, cut, hold, drop, repeat, insert };

struct attempt {
  attack kind = attack::flip;
  bool on_client = true;  // True: the client's bytes change.
  std::size_t at = 0;
  unsigned value = 1;  // The bits that are flipped; how many bytes are dropped, repeated, inserted.

  friend std::ostream& operator<<(std::ostream& to, const attempt& a) {
    return to << "attack " << int(a.kind) << " on the " << (a.on_client ? "client" : "server")
              << " at " << a.at << ", " << a.value;
  }
};

/// An attack in the first bytes of either side: so many of the client's, and of the server's.
inline attempt some_attempt(std::mt19937_64& random, std::size_t of_client, std::size_t of_server) {
  const auto below = [&](std::size_t limit) { return std::size_t(random() % limit); };
  attempt a{.kind = attack(below(6)), .on_client = below(2) == 0};
  a.at = below(a.on_client ? of_client : of_server);
  a.value = a.kind == attack::flip ? 1u << below(8) : unsigned(1 + below(200));
  return a;
}

/// Changes what one side sends, once.
class attacker {
 public:
  explicit attacker(const attempt& a) : attempt_{a} {}

  /// Changes bytes of which the first is the side's byte number `at`.
  void change(std::size_t at, std::vector<std::byte>& bytes) {
    const attempt& a = attempt_;
    if (is_done_ && (a.kind == attack::cut || a.kind == attack::hold)) bytes.clear();
    if (is_done_ || a.at < at || a.at >= at + bytes.size()) return;
    is_done_ = true;
    const auto here = bytes.begin() + std::ptrdiff_t(a.at - at);
    const auto end = here + std::min<std::ptrdiff_t>(a.value, bytes.end() - here);
    const std::vector<std::byte> some{here, end};
    switch (a.kind) {
      case attack::flip: *here ^= std::byte(a.value); break;
      case attack::cut:
      case attack::hold: bytes.erase(here, bytes.end()); break;
      case attack::drop: bytes.erase(here, end); break;
      case attack::repeat: bytes.insert(here, some.begin(), some.end()); break;
      case attack::insert: bytes.insert(here, a.value, std::byte(a.value)); break;
    }
  }
  /// Returns true if the attack came about: handshakes differ by some bytes.
  [[nodiscard]] bool is_done() const noexcept { return is_done_; }
  /// Returns true once the side's bytes end here, as if the side had ended.
  [[nodiscard]] bool has_cut() const noexcept { return is_done_ && attempt_.kind == attack::cut; }

 private:
  attempt attempt_;
  bool is_done_ = false;
};

}  // namespace cordma::test
