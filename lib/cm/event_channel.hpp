#pragma once

#include "cm_event.hpp"

#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/detail/io/poller.hpp>
#include <cordma/io/executor.hpp>

#include <rdma/rdma_cma.h>

#include <memory>

namespace cordma::cm {

/// Receives the events of one identifier, which points to it (`rdma_cm_id::context`).
class event_target {
 public:
  /// May destroy any identifier and this object, but not the channel.
  virtual void on_event(const cm_event& event) noexcept = 0;

 protected:
  event_target() noexcept = default;
  event_target(const event_target&) = default;
  event_target& operator=(const event_target&) = default;
  ~event_target() = default;
};

struct id_destroyer {
  // Waits for unacknowledged events (rdma_destroy_id(3)); the channel keeps none.
  void operator()(rdma_cm_id* id) const noexcept { rdma_destroy_id(id); }
};
/// An identifier of rdma_cm. Destroying it refuses its request, or ends its connection.
using owned_id = std::unique_ptr<rdma_cm_id, id_destroyer>;

/// Owns rdma_cm's event channel and gives each event to the `event_target` of its identifier, in an
/// event-loop iteration. Outlives its identifiers. \thread the executor's.
class event_channel : private fd_watch, private poller {
 public:
  /// Events read in one event-loop iteration. More are read in the next one.
  static constexpr unsigned events_at_once_max = 64;

  /// \errors ENODEV: there is no RDMA device. ENOENT, EACCES: the kernel's rdma_cm cannot be
  /// opened.
  ///   Each has the way out.
  explicit event_channel(cordma::executor& executor);
  event_channel(const event_channel&) = delete;
  event_channel& operator=(const event_channel&) = delete;
  ~event_channel() override = default;

  /// Makes an identifier. \errors an errno of rdma_create_id(3).
  [[nodiscard]] owned_id create_id(event_target& target, rdma_port_space space = RDMA_PS_TCP);
  /// Takes an identifier from its present channel, whose target receives its events no longer.
  /// \errors an errno of rdma_migrate_id(3).
  void adopt(rdma_cm_id& id, event_target& target);

  [[nodiscard]] cordma::executor& executor() const noexcept { return executor_; }

 private:
  struct destroyer {
    void operator()(rdma_event_channel* channel) const noexcept {
      rdma_destroy_event_channel(channel);
    }
  };
  using owned_channel = std::unique_ptr<rdma_event_channel, destroyer>;

  event_channel(cordma::executor& executor, owned_channel channel);
  static owned_channel open();
  static void on_ready(fd_watch& self) noexcept;
  std::size_t poll() noexcept override;
  bool prepare_wait() noexcept override { return false; }

  cordma::executor& executor_;
  owned_channel channel_;
};

}  // namespace cordma::cm
