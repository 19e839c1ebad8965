#pragma once

#include "cm/listener.hpp"
#include "door.hpp"

#include <cordma/connection/connection_options.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/connection/listener.hpp>
#include <cordma/detail/connection/connection_resources.hpp>

namespace cordma::detail {

/// Requests of rdma_cm (rdma_cm(7)).
class cm_door final : public door {
 public:
  /// \errors as `cm::listener` and `cm::event_channel`.
  cm_door(connection_resources resources, const socket_address& local, int backlog,
          const connection_options& options, admission admit);

  task<std::unique_ptr<arrival>> accept() override;
  void close() noexcept override { requests_.close(); }
  [[nodiscard]] socket_address local_address() const override { return requests_.local_address(); }

 private:
  const connection_resources resources_;
  const connection_options options_;
  const admission admit_;
  cm::listener requests_;
};

/// Connects by rdma_cm: to a `cm_door`, or with `options.plain` to any program. The caller sets the
/// deadline. \errors as `connect`; ENODEV: no RDMA device has the way there; errc::no_device:
/// another
///   device than the runtime's has it.
task<connection> connect_by_cm(connection_resources resources, endpoint server,
                               connection_options options);

}  // namespace cordma::detail
