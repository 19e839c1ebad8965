#include "qp/queue_pair.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <map>
#include <string>
#include <string_view>
#include <utility>

using namespace softverbs;

namespace {

constexpr ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND,
                                 IBV_QPT_XRC_RECV};
constexpr ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                   IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
constexpr std::string_view state_names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

const std::map<std::string_view, int> attributes{{"cur_state", IBV_QP_CUR_STATE},
                                                 {"notify", IBV_QP_EN_SQD_ASYNC_NOTIFY},
                                                 {"access", IBV_QP_ACCESS_FLAGS},
                                                 {"pkey", IBV_QP_PKEY_INDEX},
                                                 {"port", IBV_QP_PORT},
                                                 {"qkey", IBV_QP_QKEY},
                                                 {"av", IBV_QP_AV},
                                                 {"mtu", IBV_QP_PATH_MTU},
                                                 {"timeout", IBV_QP_TIMEOUT},
                                                 {"retry", IBV_QP_RETRY_CNT},
                                                 {"rnr_retry", IBV_QP_RNR_RETRY},
                                                 {"rq_psn", IBV_QP_RQ_PSN},
                                                 {"rd", IBV_QP_MAX_QP_RD_ATOMIC},
                                                 {"alt", IBV_QP_ALT_PATH},
                                                 {"rnr_timer", IBV_QP_MIN_RNR_TIMER},
                                                 {"sq_psn", IBV_QP_SQ_PSN},
                                                 {"dest_rd", IBV_QP_MAX_DEST_RD_ATOMIC},
                                                 {"mig", IBV_QP_PATH_MIG_STATE},
                                                 {"cap", IBV_QP_CAP},
                                                 {"dest", IBV_QP_DEST_QPN},
                                                 {"rate", IBV_QP_RATE_LIMIT}};

/// The attributes that a list of words names.
int mask_of(std::string_view words) {
  int mask = 0;
  while (!words.empty()) {
    const auto end = words.find(' ');
    mask |= attributes.at(words.substr(0, end));
    words = end == words.npos ? std::string_view{} : words.substr(end + 1);
  }
  return mask;
}

struct move {
  std::string_view required;
  std::string_view optional;
};

/// The normal paths, as the tables of ibv_modify_qp(3) and of IBTA vol. 1 (11.2.5.2) have them.
const std::map<std::pair<std::string_view, std::string_view>, move> paths[] = {
    {// RC
     {{"RESET", "INIT"}, {"pkey port access", ""}},
     {{"INIT", "INIT"}, {"", "pkey port access"}},
     {{"INIT", "RTR"}, {"av mtu dest rq_psn dest_rd rnr_timer", "alt access pkey"}},
     {{"RTR", "RTS"}, {"sq_psn rd retry rnr_retry timeout", "cur_state access alt mig rnr_timer"}},
     {{"RTS", "RTS"}, {"", "cur_state access alt mig rnr_timer"}},
     {{"RTS", "SQD"}, {"", "notify"}},
     {{"SQD", "RTS"}, {"", "cur_state access alt mig rnr_timer"}},
     {{"SQD", "SQD"},
      {"", "port av timeout retry rnr_retry rd dest_rd alt access pkey rnr_timer mig"}}},
    {// UC
     {{"RESET", "INIT"}, {"pkey port access", ""}},
     {{"INIT", "INIT"}, {"", "pkey port access"}},
     {{"INIT", "RTR"}, {"av mtu dest rq_psn", "alt access pkey"}},
     {{"RTR", "RTS"}, {"sq_psn", "cur_state access alt mig"}},
     {{"RTS", "RTS"}, {"", "cur_state access alt mig"}},
     {{"RTS", "SQD"}, {"", "notify"}},
     {{"SQD", "RTS"}, {"", "cur_state access alt mig"}},
     {{"SQD", "SQD"}, {"", "av alt access pkey mig"}},
     {{"SQE", "RTS"}, {"", "cur_state access"}}},
    {// UD
     {{"RESET", "INIT"}, {"pkey port qkey", ""}},
     {{"INIT", "INIT"}, {"", "pkey port qkey"}},
     {{"INIT", "RTR"}, {"", "pkey qkey"}},
     {{"RTR", "RTS"}, {"sq_psn", "cur_state qkey"}},
     {{"RTS", "RTS"}, {"", "cur_state qkey"}},
     {{"RTS", "SQD"}, {"", "notify"}},
     {{"SQD", "RTS"}, {"", "cur_state qkey"}},
     {{"SQD", "SQD"}, {"", "pkey qkey"}},
     {{"SQE", "RTS"}, {"", "cur_state qkey"}}},
    {// Initiators of XRC
     {{"RESET", "INIT"}, {"pkey port access", ""}},
     {{"INIT", "INIT"}, {"", "pkey port access"}},
     {{"INIT", "RTR"}, {"av mtu dest rq_psn", "alt access pkey"}},
     {{"RTR", "RTS"}, {"sq_psn rd retry rnr_retry timeout", "cur_state access alt mig"}},
     {{"RTS", "RTS"}, {"", "cur_state access alt mig"}},
     {{"RTS", "SQD"}, {"", "notify"}},
     {{"SQD", "RTS"}, {"", "cur_state access alt mig"}},
     {{"SQD", "SQD"}, {"", "port av timeout retry rnr_retry rd alt access pkey mig"}}},
    {// Targets of XRC
     {{"RESET", "INIT"}, {"pkey port access", ""}},
     {{"INIT", "INIT"}, {"", "pkey port access"}},
     {{"INIT", "RTR"}, {"av mtu dest rq_psn dest_rd rnr_timer", "alt access pkey"}},
     {{"RTR", "RTS"}, {"sq_psn timeout", "cur_state access alt mig rnr_timer"}},
     {{"RTS", "RTS"}, {"", "cur_state access alt mig rnr_timer"}},
     {{"RTS", "SQD"}, {"", "notify"}},
     {{"SQD", "RTS"}, {"", "cur_state access alt mig rnr_timer"}},
     {{"SQD", "SQD"}, {"", "port av timeout dest_rd alt access pkey rnr_timer mig"}}}};

/// Every mask that differs from a legal one by one attribute, and the legal ones.
void check_masks(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, const move& allowed) {
  const int required = mask_of(allowed.required), optional = mask_of(allowed.optional);
  CHECK(check_transition(type, from, to, IBV_QP_STATE | required) == 0);
  CHECK(check_transition(type, from, to, IBV_QP_STATE | required | optional) == 0);
  for (const auto& [name, bit] : attributes) {
    INFO(name);
    const int with = check_transition(type, from, to, IBV_QP_STATE | required | bit);
    CHECK(with == ((bit & (required | optional)) != 0 ? 0 : EINVAL));
    const int without = check_transition(type, from, to, IBV_QP_STATE | (required & ~bit));
    CHECK(without == ((bit & required) != 0 ? EINVAL : 0));
  }
}

}  // namespace

TEST_CASE("a queue pair moves along the specified paths, with their attributes, and no others",
          "[qp]") {
  for (std::size_t type = 0; type < std::size(types); ++type)
    for (const auto from : states)
      for (const auto to : states) {
        INFO("type " << types[type] << ", " << state_names[from] << " to " << state_names[to]);
        const auto path = paths[type].find({state_names[from], state_names[to]});
        if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
          check_masks(types[type], from, to, {"", ""});
        } else if (path != paths[type].end()) {
          check_masks(types[type], from, to, path->second);
        } else {
          CHECK(check_transition(types[type], from, to, IBV_QP_STATE) == EINVAL);
          for (const auto& [name, bit] : attributes)
            CHECK(check_transition(types[type], from, to, IBV_QP_STATE | bit) == EINVAL);
        }
      }
}

TEST_CASE("a queue pair does not skip a state, nor go back", "[qp]") {
  const std::pair<ibv_qp_state, ibv_qp_state> refused[] = {
      {IBV_QPS_RESET, IBV_QPS_RTR}, {IBV_QPS_RESET, IBV_QPS_RTS}, {IBV_QPS_INIT, IBV_QPS_RTS},
      {IBV_QPS_RTR, IBV_QPS_INIT},  {IBV_QPS_RTR, IBV_QPS_RTR},   {IBV_QPS_RTR, IBV_QPS_SQD},
      {IBV_QPS_RTS, IBV_QPS_INIT},  {IBV_QPS_RTS, IBV_QPS_RTR},   {IBV_QPS_RTS, IBV_QPS_SQE},
      {IBV_QPS_SQD, IBV_QPS_INIT},  {IBV_QPS_ERR, IBV_QPS_INIT},  {IBV_QPS_ERR, IBV_QPS_RTR},
      {IBV_QPS_ERR, IBV_QPS_RTS},   {IBV_QPS_ERR, IBV_QPS_SQD},   {IBV_QPS_SQE, IBV_QPS_SQD}};
  const std::string_view all =
      "access pkey port qkey av mtu timeout retry rnr_retry rq_psn rd rnr_timer sq_psn dest_rd "
      "dest";
  for (const auto type : types)
    for (const auto& [from, to] : refused) {
      INFO("type " << type << ", " << state_names[from] << " to " << state_names[to]);
      CHECK(check_transition(type, from, to, IBV_QP_STATE | mask_of(all)) == EINVAL);
    }
  CHECK(check_transition(IBV_QPT_RC, IBV_QPS_SQE, IBV_QPS_RTS, IBV_QP_STATE) == EINVAL);
}

TEST_CASE("a queue pair of a type that soft0 does not have goes nowhere", "[qp]") {
  for (const auto type : {IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER})
    for (const auto from : states)
      for (const auto to : states) CHECK(check_transition(type, from, to, IBV_QP_STATE) == EINVAL);
}
