#include "loop_reactor.hpp"

#include <poll.h>

namespace cordma::c {

bool loop_reactor::is_ready() const noexcept {
  pollfd one{.fd = inner_.descriptor(), .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, 0) != 0;
}

void loop_reactor::end_dispatch() noexcept { static_cast<void>(dispatch_.done()); }

void loop_reactor::poll() noexcept {
  inner_.poll();
  take_alarm_of_inner();
  if (dispatch_.empty() || ++polls_ < polls_max) return;
  inner_.wake();  // The descriptor stays readable: there is more.
  end_dispatch();
}

void loop_reactor::wait() noexcept {
  if (dispatch_.empty()) {
    inner_.wait();
    return take_alarm_of_inner();
  }
  // An event that is collected once the dispatch ends would be lost.
  if (!has_news_ && !is_ready()) return end_dispatch();
  has_news_ = false;
  inner_.wake();
  inner_.wait();
  take_alarm_of_inner();
}

}  // namespace cordma::c
