#include "abi/attributes.hpp"
#include "abi/dispatch.hpp"
#include "link/ip_address.hpp"
#include "node/gid_table.hpp"
#include "object/soft_verbs.hpp"

#include <arpa/inet.h>
#include <netinet/ip.h>

#include <array>
#include <cstring>

// Address handles, and how to answer the sender of a datagram.

namespace softverbs {

namespace {

constexpr std::uint8_t hop_limit = 64;
constexpr std::size_t ip_header_offset = 20;  // RoCEv2: an IPv4 header ends where a GRH ends.

/// The two ends of a datagram, from its global route header.
struct route {
  ibv_gid source{};
  ibv_gid destination{};
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
};

/// The ones' complement sum of a header of 20 bytes that includes its own checksum is all ones.
bool checksum_holds(const std::byte* header) noexcept {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < sizeof(iphdr); i += 2) {
    std::uint16_t word;
    std::memcpy(&word, header + i, sizeof word);
    sum += word;
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

/// Reads either kind of header. The kind is detected, because not every program passes a CQE whose
/// `sl` has it: an IPv4 header has the right version, length and checksum.
route read_route(const ibv_grh& grh) noexcept {
  const auto* const v4_bytes = reinterpret_cast<const std::byte*>(&grh) + ip_header_offset;
  iphdr v4;
  std::memcpy(&v4, v4_bytes, sizeof v4);
  if (v4.version == 4 && v4.ihl == 5 && checksum_holds(v4_bytes))
    return {.source = mapped<ibv_gid>({v4.saddr}),
            .destination = mapped<ibv_gid>({v4.daddr}),
            .traffic_class = v4.tos};
  const std::uint32_t version_class_flow = ntohl(grh.version_tclass_flow);
  return {.source = grh.sgid,
          .destination = grh.dgid,
          .flow_label = version_class_flow & 0xfffff,
          .traffic_class = static_cast<std::uint8_t>(version_class_flow >> 20)};
}

int init_ah_from_wc(ibv_context*, std::uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) {
  *attr = {};
  attr->port_num = port;
  attr->dlid = wc->slid;
  attr->sl = wc->sl;
  attr->src_path_bits = wc->dlid_path_bits;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  const route came = read_route(*grh);
  const int source_index = gid_index(came.destination);
  if (port != only_port || source_index < 0) return EINVAL;
  attr->is_global = 1;
  attr->grh = {.dgid = came.source,
               .flow_label = came.flow_label,
               .sgid_index = static_cast<std::uint8_t>(source_index),
               .hop_limit = hop_limit,
               .traffic_class = came.traffic_class};
  return 0;
}

}  // namespace

}  // namespace softverbs

using namespace softverbs;

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return dispatch<"ibv_create_ah">(pd->context, verb::create_ah, pd, attr);
}
int ibv_destroy_ah(ibv_ah* ah) {
  return dispatch_end<"ibv_destroy_ah">(ah->context, verb::destroy_ah, ah);
}

int ibv_init_ah_from_wc(ibv_context* ctx, std::uint8_t port, ibv_wc* wc, ibv_grh* grh,
                        ibv_ah_attr* attr) {
  if (!is_soft(ctx))
    return real::call<"ibv_init_ah_from_wc">(ibv_init_ah_from_wc, ctx, port, wc, grh, attr);
  return or_minus_one(
      serve("ibv_init_ah_from_wc", ctx, softverbs::init_ah_from_wc, ctx, port, wc, grh, attr));
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port) {
  if (!is_soft(pd->context))
    return real::call<"ibv_create_ah_from_wc">(ibv_create_ah_from_wc, pd, wc, grh, port);
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}

// soft0 has no Ethernet, and so no MAC addresses of neighbours.
int ibv_resolve_eth_l2_from_gid(ibv_context* ctx, ibv_ah_attr* attr, std::uint8_t mac[6],
                                std::uint16_t* vlan) {
  return real_only<"ibv_resolve_eth_l2_from_gid">(ctx, ibv_resolve_eth_l2_from_gid, ctx, attr, mac,
                                                  vlan);
}

}  // extern "C"
