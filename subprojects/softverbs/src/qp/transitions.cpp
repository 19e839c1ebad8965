#include "qp/queue_pair.hpp"

#include <cerrno>
#include <span>

namespace softverbs {
namespace {

/// A move that a program may request, with its required and optional attributes (IBTA vol. 1, 10.3
/// and 11.2.5.2; ibv_modify_qp(3)). check_transition() handles moves to RESET and ERR.
struct transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

constexpr int paths = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
constexpr int uc_live = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | paths;
constexpr int rc_live = uc_live | IBV_QP_MIN_RNR_TIMER;
constexpr int ud_live = IBV_QP_CUR_STATE | IBV_QP_QKEY;
constexpr int connected_address = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int connected_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int datagram_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr int rc_requester =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int connected_drained = IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | paths;

constexpr transition rc_table[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, connected_init, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, connected_init},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     connected_address | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, rc_requester | IBV_QP_SQ_PSN, rc_live},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, rc_live},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, rc_live},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     connected_drained | rc_requester | IBV_QP_PORT | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER},
};

constexpr transition uc_table[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, connected_init, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, connected_init},
    {IBV_QPS_INIT, IBV_QPS_RTR, connected_address,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, uc_live},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, uc_live},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, uc_live},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, connected_drained},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
};

constexpr transition initiator_table[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, connected_init, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, connected_init},
    {IBV_QPS_INIT, IBV_QPS_RTR, connected_address,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, rc_requester | IBV_QP_SQ_PSN, uc_live},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, uc_live},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, uc_live},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, connected_drained | rc_requester | IBV_QP_PORT},
};

constexpr transition target_table[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, connected_init, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, connected_init},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     connected_address | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, rc_live},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, rc_live},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, rc_live},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     connected_drained | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER},
};

constexpr transition ud_table[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, datagram_init, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, datagram_init},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, ud_live},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, ud_live},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, ud_live},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_QKEY | IBV_QP_PKEY_INDEX},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, ud_live},
};

std::span<const transition> table_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC: return rc_table;
    case IBV_QPT_UC: return uc_table;
    case IBV_QPT_UD: return ud_table;
    case IBV_QPT_XRC_SEND: return initiator_table;
    case IBV_QPT_XRC_RECV: return target_table;
    default: return {};
  }
}

}  // namespace

int check_transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) noexcept {
  const int attributes = mask & ~IBV_QP_STATE;
  // Allowed from every state, without further attributes.
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
    return attributes == 0 && !table_of(type).empty() ? 0 : EINVAL;
  for (const transition& row : table_of(type)) {
    if (row.from != from || row.to != to) continue;
    const bool complete = (attributes & row.required) == row.required;
    return complete && (attributes & ~(row.required | row.optional)) == 0 ? 0 : EINVAL;
  }
  return EINVAL;
}

}  // namespace softverbs
