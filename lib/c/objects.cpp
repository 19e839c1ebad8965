#include "objects.hpp"

#include <endian.h>

#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace cordma::c {

namespace {

constexpr std::string_view mark = "cordma-c";

/// Any peer may say anything: without the mark there is no limit.
std::uint32_t heard_from(const private_bytes& said) noexcept {
  const bool is_marked = std::memcmp(said.data(), mark.data(), mark.size()) == 0;
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, said.data() + mark.size(), sizeof bytes);
  return is_marked ? le32toh(bytes) : UINT32_MAX;
}

}  // namespace

private_bytes said_to_peers(std::uint32_t receive_bytes) noexcept {
  private_bytes said{};
  const std::uint32_t bytes = htole32(receive_bytes);
  std::memcpy(said.data(), mark.data(), mark.size());
  std::memcpy(said.data() + mark.size(), &bytes, sizeof bytes);
  return said;
}

connection_object::connection_object(context& of, connection made)
    : object{of}, link{std::move(made)} {
  peer_receive_bytes = heard_from(link.peer_private_data());
}

receiver::receiver(connection_object& of) {
  if (of.received != nullptr)
    throw misuse{CORDMA_WRONG_STATE, "the connection's messages go to its receive callback"};
  if (of.is_receiving)
    throw misuse{CORDMA_WRONG_STATE,
                 "another call waits for the connection's messages: one receives at a time"};
  of.is_receiving = true;
  of_ = ref<connection_object>{of};
}

void connection_object::deliver(const message& next, void* into, std::size_t room,
                                cordma_message* about) {
  const auto bytes = next.payload().bytes();
  if (about != nullptr) *about = described(next);
  if (bytes.size() > room) {
    const std::string detail = "the message has " + std::to_string(bytes.size()) +
                               " bytes, above a room of " + std::to_string(room) +
                               ": call again with more";
    kept.emplace(next);
    throw error{{.code = errc::wrong_length, .call = "cordma_receive", .detail = detail}};
  }
  if (!bytes.empty()) std::memcpy(into, bytes.data(), bytes.size());
  repost(next);
}

void connection_object::repost(const message& next) {
  if (!link.is_open()) return;
  link.post_recv(std::span{next.slices.begin(), next.slices.size()});
}

cordma_message described(const message& m) noexcept {
  return {.bytes = m.size_bytes,
          .immediate = m.immediate.value_or(0),
          .has_immediate = m.immediate.has_value(),
          .is_write = m.is_write};
}

}  // namespace cordma::c
