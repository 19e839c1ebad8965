#include "qp/data_path.hpp"

namespace softverbs {
namespace {

/// A window may ask for local write, as those of pyverbs do, but gets no right by it.
constexpr unsigned window_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                         IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                         IBV_ACCESS_ZERO_BASED;
constexpr unsigned needs_local_write = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

/// True if the region allows a window with this access (IBTA vol. 1, 10.6.7.2). The region is
/// pinned.
bool region_allows(const key_grant& region, unsigned access) noexcept {
  if (region.kind != key_kind::region || (region.access & IBV_ACCESS_MW_BIND) == 0) return false;
  return (access & needs_local_write) == 0 || (region.access & IBV_ACCESS_LOCAL_WRITE) != 0;
}

/// Fills `grant` and counts the window on its region. False: the region does not allow the window.
bool open_window(queue_pair& qp, const send_request& request, key_grant& grant) noexcept {
  const auto& bind = request.bind();
  if (bind.bytes == 0 || (bind.access & ~window_access_flags) != 0) return false;
  key_table& keys = qp.local_node->keys();
  key_slot* region = keys.slot_of(bind.region);
  if (region == nullptr) return false;
  pinned pin;
  // Count first, then pin: deregistration revokes the key first, then reads the count.
  region->windows.fetch_add(1);
  if (keys.pin(bind.region, qp.pd, 0, 0, bind.address, bind.bytes, pin) != key_error::none ||
      !region_allows(region->grant, bind.access)) {
    region->windows.fetch_sub(1);
    return false;
  }
  const bool zero_based = (bind.access & IBV_ACCESS_ZERO_BASED) != 0;
  grant.pd = qp.pd;
  grant.access = bind.access;
  grant.iova = zero_based ? 0 : bind.address;
  grant.base = pin.address();
  grant.length = bind.bytes;
  grant.parent = bind.region >> variant_bits;
  return true;
}

/// Grants the key. False: another queue pair bound the window first; the count is taken back.
bool grant_window(key_table& keys, std::uint32_t key, const key_grant& grant) noexcept {
  if (keys.grant(key, grant)) return true;
  keys.slot_of(grant.parent << variant_bits)->windows.fetch_sub(1);
  return false;
}

/// Copies the grant of `key`. False: the key is not live.
bool peek(key_slot& slot, std::uint32_t key, key_grant& grant) noexcept {
  slot.pins.fetch_add(1);
  const pinned pin{&slot, nullptr};
  if (key == 0 || slot.key.load() != key) return false;
  grant = slot.grant;
  return true;
}

next_step failed(queue_pair& qp) noexcept { return fail(qp, IBV_WC_MW_BIND_ERR); }

next_step bind_type_1(queue_pair& qp, const send_request& request) noexcept {
  key_table& keys = qp.local_node->keys();
  key_grant grant;
  grant.kind = key_kind::window_type_1;
  // A bind of length zero unbinds a window of type 1.
  const bool opens = request.bind().bytes != 0;
  if (opens && !open_window(qp, request, grant)) return failed(qp);
  if (const key_slot* window = keys.slot_of(request.bind().new_rkey))
    keys.revoke(window->key.load(std::memory_order_acquire));
  return !opens || grant_window(keys, request.bind().new_rkey, grant) ? succeed(qp) : failed(qp);
}

next_step bind_type_2(queue_pair& qp, const send_request& request) noexcept {
  key_table& keys = qp.local_node->keys();
  const std::uint32_t old_key = request.bind().old_rkey;
  const std::uint32_t new_key =
      (old_key & ~variant_mask) | (request.bind().new_rkey & variant_mask);
  const key_slot* window = keys.slot_of(old_key);
  key_grant grant;
  grant.kind = key_kind::window_type_2;
  grant.qpn = qp.number();
  if (window == nullptr || window->key.load(std::memory_order_acquire) != 0) return failed(qp);
  if (!open_window(qp, request, grant)) return failed(qp);
  return grant_window(keys, new_key, grant) ? succeed(qp) : failed(qp);
}

}  // namespace

next_step bind_window(queue_pair& qp, send_request& request) noexcept {
  if (request.bind().pd != qp.pd) return failed(qp);
  return request.bind().type == IBV_MW_TYPE_1 ? bind_type_1(qp, request) : bind_type_2(qp, request);
}

bool invalidate_key(queue_pair& qp, std::uint32_t rkey) noexcept {
  key_table& keys = qp.local_node->keys();
  key_slot* window = keys.slot_of(rkey);
  key_grant grant;
  const bool ours = window != nullptr && peek(*window, rkey, grant) &&
                    grant.kind == key_kind::window_type_2 && grant.pd == qp.pd &&
                    grant.qpn == qp.number();
  if (ours) keys.revoke(rkey);
  return ours;
}

next_step invalidate(queue_pair& qp, send_request& request) noexcept {
  return invalidate_key(qp, request.immediate) ? succeed(qp) : failed(qp);
}

}  // namespace softverbs
