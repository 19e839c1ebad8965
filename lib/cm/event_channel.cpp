#include "event_channel.hpp"

#include "base/descriptors.hpp"
#include "base/failures.hpp"

#include <fcntl.h>

#include <cerrno>
#include <utility>

namespace cordma::cm {
namespace {

const char* way_out_of_open(int errno_value) noexcept {
  switch (errno_value) {
    case ENODEV: return "there is no RDMA device on this machine (ibv_devices); connect by TCP";
    case ENOENT:
    case ENXIO:
      return "the kernel has no rdma_cm: load its module (modprobe rdma_ucm), or connect by TCP; a "
             "container needs /dev/infiniband/rdma_cm";
    case EACCES:
    case EPERM:
      return "this user may not open /dev/infiniband/rdma_cm; join its group, or connect by TCP";
    default: return way_out_of_descriptors(errno_value);
  }
}

}  // namespace

event_channel::event_channel(cordma::executor& executor) : event_channel{executor, open()} {}

event_channel::event_channel(cordma::executor& executor, owned_channel channel)
    : fd_watch{channel->fd, fd_events::readable, &on_ready},
      executor_{executor},
      channel_{std::move(channel)} {
  watch(executor_.reactor(), watch_kind::edges);
}

event_channel::owned_channel event_channel::open() {
  owned_channel channel{rdma_create_event_channel()};
  if (channel == nullptr) {
    const int why = errno;
    detail::throw_errno(why, "rdma_create_event_channel", way_out_of_open(why));
  }
  const int flags = ::fcntl(channel->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    detail::throw_errno(errno, "fcntl", {}, {"fd", std::uint64_t(channel->fd)});
  return channel;
}

owned_id event_channel::create_id(event_target& target, rdma_port_space space) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel_.get(), &id, &target, space) != 0)
    detail::throw_errno(errno, "rdma_create_id");
  return owned_id{id};
}

void event_channel::adopt(rdma_cm_id& id, event_target& target) {
  if (rdma_migrate_id(&id, channel_.get()) != 0) detail::throw_errno(errno, "rdma_migrate_id");
  id.context = &target;
}

void event_channel::on_ready(fd_watch& self) noexcept { static_cast<event_channel&>(self).poll(); }

std::size_t event_channel::poll() noexcept {
  for (unsigned n = 0; n < events_at_once_max; ++n) {
    rdma_cm_event* original = nullptr;
    if (rdma_get_cm_event(channel_.get(), &original) != 0) {
      if (errno == EINTR) continue;
      if (errno == ENOMEM) break;  // The event waits, and nothing tells of it again.
      list_hook<poller>::unlink();
      return n;
    }
    const cm_event event{*original};
    const rdma_cm_id& concerned = event.request != nullptr ? *original->listen_id : *original->id;
    auto* const target = static_cast<event_target*>(concerned.context);
    rdma_ack_cm_event(original);
    target->on_event(event);
  }
  if (!is_linked()) executor_.add(*this);
  return events_at_once_max;
}

}  // namespace cordma::cm
