#pragma once

#include "acceptor.hpp"
#include "cm/listener.hpp"

#include <cordma/connection/connection_options.hpp>

namespace cordma::detail {

/// Requests of rdma_cm (rdma_cm(7)).
class cm_acceptor final : public acceptor {
 public:
  /// \errors as `cm::listener`.
  cm_acceptor(cm::event_channel& events, const socket_address& local, int backlog);

  task<std::unique_ptr<arrival>> accept() override;
  void close() noexcept override { requests_.close(); }
  [[nodiscard]] socket_address local_address() const override { return requests_.local_address(); }

 private:
  cm::listener requests_;
};

/// Connects by rdma_cm: to a `cm_acceptor`, or with `options.plain` to any program. The caller sets
/// the deadline. \errors as `connect`; ENODEV: no RDMA device has the way there; errc::no_device:
/// another
///   device than the runtime's has it.
task<connection> connect_by_cm(connection_resources resources, endpoint server,
                               connection_options options);

}  // namespace cordma::detail
