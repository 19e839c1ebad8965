#include "dcb.hpp"

#include <cordma/base/unique_fd.hpp>

#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

namespace doctor {
namespace {

constexpr std::size_t aligned(std::size_t bytes) noexcept {
  return (bytes + NLA_ALIGNTO - 1) / NLA_ALIGNTO * NLA_ALIGNTO;
}

/// Returns the contents of the first attribute of a kind; empty: there is none.
std::span<const std::byte> attribute(std::span<const std::byte> in, unsigned kind) noexcept {
  while (in.size() >= sizeof(nlattr)) {
    nlattr head;
    std::memcpy(&head, in.data(), sizeof head);
    if (head.nla_len < sizeof head || head.nla_len > in.size()) return {};
    if ((head.nla_type & NLA_TYPE_MASK) == kind) {
      return in.subspan(sizeof head, head.nla_len - sizeof head);
    }
    if (aligned(head.nla_len) >= in.size()) return {};
    in = in.subspan(aligned(head.nla_len));
  }
  return {};
}

/// A question about one interface.
struct question {
  explicit question(const std::string& netdev) noexcept {
    head.nlmsg_len = sizeof *this;
    head.nlmsg_type = RTM_GETDCB;
    head.nlmsg_flags = NLM_F_REQUEST;
    dcb.cmd = DCB_CMD_IEEE_GET;
    name_head.nla_type = DCB_ATTR_IFNAME;
    name_head.nla_len = sizeof name_head + sizeof name;
    netdev.copy(name.data(), name.size() - 1);
  }

  nlmsghdr head{};
  dcbmsg dcb{};
  nlattr name_head{};
  std::array<char, IFNAMSIZ> name{};
};

}  // namespace

std::optional<std::uint8_t> parse_pfc(std::span<const std::byte> answer) noexcept {
  nlmsghdr head;
  constexpr std::size_t begin = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(dcbmsg));
  if (answer.size() < begin) return std::nullopt;
  std::memcpy(&head, answer.data(), sizeof head);
  if (head.nlmsg_type != RTM_GETDCB || head.nlmsg_len > answer.size() || head.nlmsg_len < begin) {
    return std::nullopt;
  }
  const auto all = answer.subspan(begin, head.nlmsg_len - begin);
  const auto pfc = attribute(attribute(all, DCB_ATTR_IEEE), DCB_ATTR_IEEE_PFC);
  if (pfc.size() < offsetof(ieee_pfc, pfc_en) + 1) return std::nullopt;
  return std::uint8_t(pfc[offsetof(ieee_pfc, pfc_en)]);
}

std::optional<std::uint8_t> read_pfc(const std::string& netdev) {
  const cordma::unique_fd socket{::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)};
  if (!socket.is_open()) return std::nullopt;
  const question asked{netdev};
  if (::send(socket.get(), &asked, sizeof asked, 0) != ssize_t(sizeof asked)) return std::nullopt;
  std::array<std::byte, 8192> answer;
  // The kernel answers before `send` returns.
  const ssize_t n = ::recv(socket.get(), answer.data(), answer.size(), MSG_DONTWAIT);
  if (n <= 0) return std::nullopt;
  return parse_pfc(std::span{answer}.first(std::size_t(n)));
}

}  // namespace doctor
