#include <cordma/detail/io/fd_watch.hpp>

#include <cordma/io/executor.hpp>

namespace cordma {

fd_watch::fd_watch(cordma::executor& executor, int fd, fd_events events, function on_ready)
    : fd_watch{fd, events, on_ready} {
  watch(executor.reactor(), watch_kind::edges);
}

fd_watch::fd_watch(fd_watch&& other) noexcept
    : on_ready_{other.on_ready_}, fd_{other.fd_}, events_{other.events_} {
  CORDMA_ASSERT(!other.is_watching(), "a watch that watches cannot be moved");
}

void fd_watch::watch(reactor& reactor, watch_kind kind) {
  CORDMA_ASSERT(!is_watching(), "watched twice");
  kind_ = kind;
  reactor.watch(*this);
  reactor_ = &reactor;
}

bool fd_operation::start(waiter& w, const environment& env) {
  stopped_ = env.stop.stop_requested();
  if (stopped_ || attempt_(*this)) return true;
  watch(executor_->reactor(), watch_kind::once);
  begin(w, {executor_, env.stop});
  return false;
}

void fd_operation::on_ready(fd_watch& self) noexcept {
  auto& op = static_cast<fd_operation&>(self);
  if (op.attempt_(op)) {
    op.unwatch();
    op.end();
  } else if (!op.is_watching()) {
    // The kernel counts a peer's half-close as readiness of any kind, also to write. Waiting for
    // the state again would spin; waiting for the next change does not.
    op.watch(op.executor_->reactor(), watch_kind::edges);
  }
}

void fd_operation::on_stop(stop_callback& self) noexcept {
  auto& op = static_cast<fd_operation&>(self);
  op.unwatch();
  op.stopped_ = true;
  op.end();
}

}  // namespace cordma
