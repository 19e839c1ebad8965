#pragma once

#include "cm/datagram_id.hpp"

#include <cordma/base/error.hpp>
#include <cordma/base/unique_fd.hpp>
#include <cordma/datagram/datagram.hpp>
#include <cordma/detail/base/counted.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <memory>
#include <optional>

namespace cordma::detail {

/// One socket's part in a group, which all its memberships there share. Leaves with the last of
/// them, or with the socket. \thread the executor's.
class multicast_group final : public counted, public list_hook<multicast_group> {
 public:
  multicast_group(const datagram_address& address, bool send_only) noexcept
      : send_only_{send_only}, address_{address} {}
  ~multicast_group() override { leave(); }

  /// Keeps what makes this host a member, until `leave`: of an IP group, or of InfiniBand's.
  void keep(unique_fd ip_membership) noexcept { ip_ = std::move(ip_membership); }
  void keep(std::unique_ptr<cm::datagram_id> of_subnet) noexcept { subnet_ = std::move(of_subnet); }
  /// Makes a queue pair receive what the group is sent, until `leave`.
  /// \errors as `verbs::queue_pair::attach`.
  void attach(verbs::queue_pair& to);
  /// The queue pair, if any, exists still. Idempotent.
  void leave() noexcept;

  [[nodiscard]] bool is_for(const datagram_address& address, bool send_only) const noexcept {
    return send_only_ == send_only && address_ == address;
  }
  [[nodiscard]] const datagram_address& address() const noexcept { return address_; }
  [[nodiscard]] std::optional<failure> why_lost() const noexcept;

 private:
  const bool send_only_;
  const datagram_address address_;
  verbs::queue_pair* attached_ = nullptr;
  unique_fd ip_;
  std::unique_ptr<cm::datagram_id> subnet_;
};

}  // namespace cordma::detail
