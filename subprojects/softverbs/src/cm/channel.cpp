#include "cm/channel.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace softverbs::cm {

bool channel::push(const event& one) noexcept {
  try {
    events_.push_back(one);
  } catch (const std::bad_alloc&) {
    return false;
  }
  untake();
  return true;
}

void channel::revoke(const std::function<bool(const event&)>& which,
                     const std::function<void(const event&)>& with) noexcept {
  // `with` may revoke events, too: the search begins anew.
  for (;;) {
    const auto found = std::find_if(events_.begin(), events_.end(), which);
    if (found == events_.end()) return;
    std::list<event> revoked;
    revoked.splice(revoked.end(), events_, found);
    take_one();
    if (with) with(revoked.front());
  }
}

void channel::move_events(const identifier& of, channel& to) noexcept {
  for (auto at = events_.begin(); at != events_.end();) {
    const auto one = at++;
    if (one->of != &of) continue;
    to.events_.splice(to.events_.end(), events_, one);
    take_one();
    to.untake();
  }
}

void channel::untake() noexcept {
  const std::uint64_t once = 1;
  (void)!::write(counter_.get(), &once, sizeof once);
}

/// A thread in GET_EVENT may have taken the count before: it finds no event, and waits again. The
/// program decides whether its eventfd blocks, hence RWF_NOWAIT. Linux before 5.8 does not know
/// RWF_NOWAIT, and the eventfd stays readable once too often.
void channel::take_one() noexcept {
  std::uint64_t count = 0;
  const iovec to{&count, sizeof count};
  constexpr off_t current = -1;
  (void)!::preadv2(counter_.get(), &to, 1, current, RWF_NOWAIT);
}

}  // namespace softverbs::cm
