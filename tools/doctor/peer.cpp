#include "peer.hpp"

#include "../perf/text.hpp"
#include "connection/handshake.hpp"

#include <cordma/rpc/client.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <algorithm>
#include <cmath>
#include <random>

namespace doctor {
namespace {

using namespace std::chrono_literals;
using cordma::connection;
using cordma::connection_changes;
using cordma::runtime;
using cordma::task;
using cordma::verbs::bytes_of;

/// All handshakes and operations with one server.
class peer_tries {
 public:
  peer_tries(runtime& rt, cordma::endpoint server, report& r)
      : rt_{rt}, server_{std::move(server)}, report_{r} {}

  void run();

 private:
  task<> shake_hands();
  task<std::string> ask_device();
  task<outcome> do_to_peer(operation op, const connection_changes& changes);
  task<outcome> do_from_peer(operation op, const connection_changes& changes);
  outcome try_one(operation op, bool from_peer, const connection_changes& changes);
  bool reach();
  bool find_mtu();
  void try_transfers();
  void try_rnr();
  void try_silence();
  void add(const std::string& check, const outcome& o, const std::string& why,
           const std::string& mend);
  void describe(connection& conn, cordma::duration time);
  void describe_retries(connection& conn);
  [[nodiscard]] connection_changes changes_with_mtu(operation op) const;

  runtime& rt_;
  const cordma::endpoint server_;
  report& report_;
  cordma::rpc::client calls_;
  ibv_mtu mtu_ = IBV_MTU_256;  ///< The smaller of both ports', then the largest that works.
  std::mt19937_64 numbers_{std::random_device{}()};
};

connection_changes with_purpose(connection_changes changes, const purpose& p) {
  changes.private_data = encode(p);
  return changes;
}

task<> peer_tries::shake_hands() {
  connection_changes changes = with_purpose(connection_changes{}, purpose{});
  changes.fabric.mtu = IBV_MTU_256;  // Calls go on whatever the MTU between the two is.
  const auto start = std::chrono::steady_clock::now();
  connection conn = co_await rt_.connect(server_, changes);
  describe(conn, std::chrono::steady_clock::now() - start);
  describe_retries(conn);
  calls_ = cordma::rpc::client{std::move(conn)};
}

void peer_tries::describe(connection& conn, cordma::duration time) {
  const auto& here = conn.local_hello();
  const auto& there = conn.peer_hello();
  mtu_ = std::min(here.mtu, there.mtu);
  const double ms = std::chrono::duration<double, std::milli>{time}.count();
  std::string value = "to " + conn.peer().to_string();
  perf::append(value, " in %.1f ms; ", ms);
  value += cordma::verbs::to_string(here.gid) + " to " + cordma::verbs::to_string(there.gid) +
           " (" + cordma::verbs::to_string(here.gid_kind) + "); the ports' MTU " +
           std::to_string(bytes_of(here.mtu)) + " here, " + std::to_string(bytes_of(there.mtu)) +
           " there; " + std::string{there.library.view()};
  report_.ok("peer.handshake", value, "both sides agree on queue pairs, GIDs and limits");
}

/// Asks the device for the settings: it may have replaced them.
void peer_tries::describe_retries(connection& conn) {
  const cordma::connection_options& wanted = rt_.connection_defaults();
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  const int mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER;
  if (ibv_query_qp(conn.verbs().native_handle(), &attr, mask, &init) != 0) return;
  const double lost = 4.096e-6 * std::exp2(attr.timeout) * (attr.retry_cnt + 1);
  std::string value;
  perf::append(value,
               "timeout %u, retry_cnt %u: a lost peer shows after %.2f s or more; rnr_retry %u, "
               "min_rnr_timer %u",
               unsigned(attr.timeout), unsigned(attr.retry_cnt), lost, unsigned(attr.rnr_retry),
               unsigned(attr.min_rnr_timer));
  const std::string why =
      "they decide how long a lost packet, a lost peer and a late receive may take "
      "(docs/errors.md)";
  const bool is_same = attr.timeout == wanted.timeout && attr.retry_cnt == wanted.retry_cnt &&
                       attr.rnr_retry == wanted.rnr_retry &&
                       attr.min_rnr_timer == wanted.min_rnr_timer;
  if (is_same) {
    report_.ok("peer.retries", value, why);
  } else {
    report_.warning("peer.retries", value + "; the device replaced what was set", why,
                    "set connection_options::timeout and the others to what the device takes");
  }
}

task<std::string> peer_tries::ask_device() { co_return co_await calls_.call<device_of>(); }

task<outcome> peer_tries::do_to_peer(operation op, const connection_changes& changes) {
  const purpose wanted{.op = op};
  const connection_changes all = with_purpose(changes, wanted);
  connection conn = co_await rt_.connect(server_, all);
  co_return co_await outcome_of_act(rt_, std::move(conn), op);
}

task<outcome> peer_tries::do_from_peer(operation op, const connection_changes& changes) {
  const purpose wanted{.op = op, .server_acts = true, .number = numbers_()};
  const connection_changes all = with_purpose(changes, wanted);
  connection conn = co_await rt_.connect(server_, all);
  co_await answer(rt_, std::move(conn), op);
  const cordma::rpc::call_options options{.timeout = attempt_time_max};
  const std::string told = co_await calls_.call<outcome_of>(wanted.number, options);
  co_return decode_outcome(told);
}

outcome peer_tries::try_one(operation op, bool from_peer, const connection_changes& changes) {
  try {
    return rt_.run(from_peer ? do_from_peer(op, changes) : do_to_peer(op, changes));
  } catch (const std::exception& e) {
    return {.kind = outcome_kind::failure, .text = e.what()};
  }
}

connection_changes peer_tries::changes_with_mtu(operation op) const {
  connection_changes changes = changes_for(op);
  changes.fabric.mtu = mtu_;
  return changes;
}

void peer_tries::add(const std::string& check, const outcome& o, const std::string& why,
                     const std::string& mend) {
  switch (o.kind) {
    case outcome_kind::success: return report_.ok(check, o.text, why);
    case outcome_kind::not_there: return report_.note(check, o.text, why);
    case outcome_kind::failure: return report_.error(check, o.text, why, mend);
  }
}

/// The first packets between the two devices.
bool peer_tries::reach() {
  const std::string why = "a handshake goes by TCP; what follows goes from device to device";
  try {
    report_.ok("peer.reach", rt_.run(ask_device()), why);
    return true;
  } catch (const std::exception& e) {
    report_.error("peer.reach", e.what(), why,
                  "let UDP port 4791 (RoCE v2) pass firewalls; choose a GID of the peer's network: "
                  "CORDMA_GID_INDEX");
    return false;
  }
}

bool peer_tries::find_mtu() {
  const ibv_mtu most = mtu_;
  std::string last;
  const auto works = [&](ibv_mtu mtu) {
    mtu_ = mtu;
    const outcome o = try_one(operation::bulk, false, changes_with_mtu(operation::bulk));
    if (o.kind != outcome_kind::success) last = o.text;
    return o.kind == outcome_kind::success;
  };
  const std::optional<ibv_mtu> found = usable_mtu(most, works);
  const std::string why =
      "longer packets than the network carries are lost: short messages pass, long ones do not";
  const std::string mend =
      "raise the MTU of the interfaces and switches between (sudo ip link set NETDEV mtu 4200), or "
      "CORDMA_MTU=" +
      std::to_string(bytes_of(found.value_or(IBV_MTU_256)));
  if (!found) {
    report_.error("peer.mtu", "64 KiB pass with no MTU: " + last, why, mend);
  } else if (*found < most) {
    report_.error("peer.mtu",
                  std::to_string(bytes_of(*found)) + ", and not " + std::to_string(bytes_of(most)) +
                      ", as the ports say: " + last,
                  why, mend);
  } else {
    report_.ok("peer.mtu", std::to_string(bytes_of(*found)) + ", as the ports say; both ways", why);
  }
  mtu_ = found.value_or(IBV_MTU_256);
  return found.has_value();
}

void peer_tries::try_transfers() {
  const std::string why = "programs need it over this network, in this direction";
  for (const bool from_peer : {false, true}) {
    for (const operation op : transfers) {
      const std::string check = std::string{from_peer ? "peer.from." : "peer.to."} + to_string(op);
      add(check, try_one(op, from_peer, changes_with_mtu(op)), why,
          "see peer.mtu, and the other side's findings; sudo dmesg may tell more");
    }
  }
}

void peer_tries::try_rnr() {
  const std::string why =
      "a SEND that finds no receive is tried again: (rnr_retry + 1) tries, min_rnr_timer apart";
  const std::string mend = "raise connection_options::rnr_retry or min_rnr_timer";
  const connection_changes changes = changes_with_mtu(operation::late_receive);
  add("peer.to.late_receive", try_one(operation::late_receive, false, changes), why, mend);
  add("peer.from.late_receive", try_one(operation::late_receive, true, changes), why, mend);

  connection_changes without = changes;
  without.rnr_retry = std::uint8_t{0};
  outcome o = try_one(operation::late_receive, false, without);
  const std::string expected =
      cordma::make_error_code(cordma::wc_errc::rnr_retry_exceeded).message();
  if (o.kind == outcome_kind::failure && o.text.find(expected) != std::string::npos) {
    o = {.kind = outcome_kind::success, .text = "with rnr_retry 0 the SEND fails at once"};
  } else {
    o = {.kind = outcome_kind::failure, .text = "with rnr_retry 0 the SEND ends so: " + o.text};
  }
  add("peer.rnr_retry", o, "a device that ignores the setting hides a missing receive",
      "see the device's driver and firmware");
}

void peer_tries::try_silence() {
  const connection_changes changes = changes_with_mtu(operation::silence);
  add("peer.silence", try_one(operation::silence, false, changes),
      "4.096 us * 2^timeout * (retry_cnt + 1), here 67 ms; devices may take four times as long",
      "see the device's driver and firmware: it does not give up as timeout and retry_cnt say");
}

task<> close(cordma::rpc::client& calls) { co_await calls.close(); }

void peer_tries::run() {
  try {
    rt_.run(shake_hands());
  } catch (const cordma::error& e) {
    report_.error("peer.handshake", e.what(),
                  "both sides agree on queue pairs, GIDs and limits, before RDMA begins",
                  mend_of_handshake(e.failure(), server_));
    return;
  }
  if (!reach() || !find_mtu()) return;
  try_transfers();
  try_rnr();
  try_silence();
  rt_.run(close(calls_));
}

}  // namespace

std::optional<ibv_mtu> usable_mtu(ibv_mtu most, const std::function<bool(ibv_mtu)>& works) {
  for (int mtu = most; mtu >= IBV_MTU_256; --mtu) {
    if (works(ibv_mtu(mtu))) return ibv_mtu(mtu);
  }
  return std::nullopt;
}

std::string mend_of_handshake(const cordma::failure& f, const cordma::endpoint& server) {
  const auto code = f.code;
  const std::string port = std::to_string(server.port);
  if (code == std::errc::connection_refused) {
    return "on the peer: cordma-doctor --serve --host ADDRESS --port " + port;
  }
  if (code == cordma::errc::timed_out || code == std::errc::timed_out) {
    return "start cordma-doctor --serve on the peer, and let TCP port " + port + " pass firewalls";
  }
  if (code == cordma::errc::unknown_host) return "give the peer's address: cordma-doctor ADDRESS";
  if (code == std::errc::host_unreachable || code == std::errc::network_unreachable ||
      code == cordma::errc::no_gid) {
    return "choose a GID of the peer's network: CORDMA_GID_INDEX=ROW (see gid)";
  }
  if (code == cordma::errc::incompatible_peer) {
    return "make both sides agree on what the text names: CORDMA_GID_INDEX, CORDMA_PORT, "
           "CORDMA_PKEY_INDEX, CORDMA_MTU";
  }
  return "run cordma-doctor on the peer, too; the text names the way out";
}

void try_peer(runtime& rt, const cordma::endpoint& server, report& r) {
  peer_tries{rt, server, r}.run();
}

}  // namespace doctor
