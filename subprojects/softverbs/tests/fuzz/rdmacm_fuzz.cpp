#include "cm/message_check.hpp"
#include "fuzz/rdmacm_program.hpp"
#include "memory/guarded_copy.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

// Each execution performs a script from the fuzzer's bytes. Two programs use rdma_cm, a malicious
// peer talks to them and between them, and time passes. There are no sockets: a double carries the
// messages, and drops those that a transport would not show.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace softverbs::fuzz {

namespace {

using namespace softverbs::cm;
using cm::test::double_conversation;
using cm::test::double_transport;
using cm::test::network;
using std::chrono::milliseconds;

constexpr int acts_max = 48;       ///< Acts of a script.
constexpr int waits_max = 10'000;  ///< Waits of an execution, until nothing waits any more.
constexpr std::uint16_t hostile_port = 7474;
constexpr in6_addr loopback{{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}};
constexpr in6_addr far_host{{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1}}};

/// Checks that the words of rdma_cm itself pass the checks of its peer.
void check_said(const message& words) noexcept {
  message known = words;  // A program may give a path of any MTU.
  known.path_mtu = std::min<std::uint8_t>(known.path_mtu, IBV_MTU_4096);
  must(is_valid(known), "rdma_cm says what its peer does not take");
}

/// The other end of a conversation with the malicious peer.
struct talker final : conversation::user {
  std::unique_ptr<conversation> with;
  void on_message(const message& words) noexcept override {
    check_said(words);
    must(!words.is_request(), "a request comes within a conversation");
  }
  void on_end(int) noexcept override {}
};

/// Changes a few bytes; most often none.
message damaged(script& in, const message& honest) noexcept {
  constexpr unsigned lies_max = 3;
  const unsigned lies = in.byte() % 16u;
  if (lies > lies_max) return honest;
  message words = honest;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(&words);
  constexpr std::size_t mostly = offsetof(message, private_data) + 8;
  for (unsigned n = 0; n < lies; ++n) {
    const std::size_t at = in.take<std::uint16_t>() % mostly;
    bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ in.byte());
  }
  return words;
}

message some_words(script& in, message_kind kind) noexcept {
  const std::uint8_t what = in.byte();
  message words;
  words.kind = kind;
  words.qpn = 0x200u + what;
  words.psn = what * 0x10101u;
  words.qkey = what % 4u == 0 ? 0 : what % 4u == 1 ? what : default_qkey;
  words.reason = what % 8u == 0 ? what : 0;
  words.responder_resources = what;
  words.initiator_depth = what / 2;
  words.retry_count = words.rnr_retry_count = what % 8;
  words.ack_timeout = what % 32;
  words.private_bytes = what % 93;
  std::memset(words.private_data, 1 + what % 255, sizeof words.private_data);
  return words;
}

/// A malicious process, or host: it asks, answers, and puts words into conversations of others.
class hostile final : public transport::listener {
 public:
  explicit hostile(network& all) : all_{all}, net_{all, *this} {
    for (const std::uint16_t space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
      endpoint wanted;
      wanted.address = loopback;
      wanted.port = hostile_port;
      int error = 0;
      names_.push_back(net_.bind(space, wanted, false, false, error));
      names_.back()->listen();
    }
  }

  void on_request(binding&, std::unique_ptr<conversation> from,
                  const message& words) noexcept override {
    check_said(words);
    must(words.is_request(), "a conversation begins with something else than a request");
    if (words.qpn % 8 == 7) return;  // The malicious peer closes at once.
    talker& one = talkers_[next_++ % talkers_.size()];
    one.with = std::move(from);
    one.with->set_user(one);
  }

  void ask(script& in) noexcept {
    const std::uint8_t which = in.byte();
    const auto* to = all_.names[which % all_.names.size()];
    const bool is_datagram = to->space == RDMA_PS_UDP || to->space == RDMA_PS_IPOIB;
    message words =
        some_words(in, is_datagram ? message_kind::sidr_request : message_kind::request);
    words.space = to->space;
    words.source.address = which % 16 == 15 ? far_host : loopback;
    words.source.port = 40'000;
    words.destination.address = loopback;
    words.destination.port = to->name.port;
    words.qp_type = is_datagram ? IBV_QPT_UD : IBV_QPT_RC;
    words.path_mtu = IBV_MTU_1024;
    words = damaged(in, words);
    if (!is_valid(words) || !words.is_request()) return;
    talker& one = talkers_[next_++ % talkers_.size()];
    one.with = net_.start(words, one);
  }

  void say(script& in) noexcept {
    const talker& one = talkers_[in.byte() % talkers_.size()];
    double_conversation* const to = live(one);
    if (to != nullptr && to->peer != nullptr) put_words(in, *to->peer);
  }

  void leave(std::uint8_t which) noexcept { talkers_[which % talkers_.size()].with.reset(); }
  void leave() noexcept {
    for (talker& one : talkers_) one.with.reset();
  }
  bool run() noexcept {
    net_.worked = false;
    net_.run(all_.now);
    return net_.worked;
  }

  /// A message that arrives at one end of a conversation. A transport ends it for a bad message.
  static void put_words(script& in, double_conversation& to) noexcept {
    constexpr message_kind kinds[] = {
        message_kind::reply,   message_kind::ready,      message_kind::disconnect_request,
        message_kind::reject,  message_kind::sidr_reply, message_kind::disconnect_reply,
        message_kind::request, message_kind::reply};
    const message words = damaged(in, some_words(in, kinds[in.byte() % std::size(kinds)]));
    if (is_valid(words) && !words.is_request())
      to.inbox.push_back(words);
    else
      to.ends = ECONNRESET;
  }

 private:
  [[nodiscard]] double_conversation* live(const talker& one) const noexcept {
    const auto found = std::find_if(net_.live.begin(), net_.live.end(),
                                    [&](auto* each) { return each == one.with.get(); });
    return found == net_.live.end() ? nullptr : *found;
  }

  network& all_;
  double_transport net_;
  std::vector<std::unique_ptr<binding>> names_;
  std::array<talker, 8> talkers_;
  std::size_t next_ = 0;
};

enum class act : std::uint8_t {
  listen,
  dial,
  command,
  more_commands,
  respond,
  read_event,
  more_events,
  run,
  run_all,
  ask,
  say,
  leave,
  interfere,
  disturb,
  later,
  close,
  count
};

class stage {
 public:
  explicit stage(std::array<std::array<open_file, program::files>, 2>& files)
      : programs_{{{all_, files[0]}, {all_, files[1]}}} {}

  void run(script& in) noexcept {
    for (int n = 0; n < acts_max && !in.done(); ++n) {
      perform(in);
      for (const program& one : programs_) one.check();
    }
    settle();
    const std::uint8_t last = in.byte();
    programs_[last % 2].close(last / 2 % program::files);
    run_all();
    hostile_.leave();
    all_.silent = false;
    all_.now += std::chrono::hours{24};
    for (program& one : programs_) one.finish(last % 8 == 0);
    hostile_.run();
  }

 private:
  void perform(script& in) noexcept {
    const std::uint8_t what = in.byte();
    program& by = programs_[what / 16 % 2];
    switch (static_cast<act>(what % 16)) {
      case act::listen: return by.listen(in);
      case act::dial: return by.dial(in);
      case act::command:
      case act::more_commands: return by.command(in);
      case act::respond: return by.respond(in);
      case act::read_event:
      case act::more_events: return by.read_event(in);
      case act::run: by.run(); return;
      case act::run_all: return run_all();
      case act::ask: return hostile_.ask(in);
      case act::say: return hostile_.say(in);
      case act::leave: return hostile_.leave(in.byte());
      case act::interfere: return interfere(in, by);
      case act::disturb: return disturb(in.byte(), by);
      case act::later: return later(in.byte());
      case act::close:
        if (what >= 192) by.close(in.byte() % program::files);
        return;
      case act::count: return;
    }
  }

  /// Does something to a message, or to a conversation.
  static void interfere(script& in, program& by) noexcept {
    auto& net = *by.process().net;
    const std::uint8_t what = in.byte();
    for (auto& one : net.arrivals) check_said(one.request);
    if (net.live.empty()) return;
    double_conversation& one = **std::next(net.live.begin(), what / 8 % net.live.size());
    if (one.hears == nullptr) return;
    switch (what % 8) {
      case 0: {
        constexpr int errors[] = {ECONNREFUSED, ECONNRESET, ETIMEDOUT, EHOSTUNREACH};
        one.ends = errors[in.byte() % std::size(errors)];
        return;
      }
      case 1:
        if (!one.inbox.empty()) one.inbox.pop_front();
        return;
      case 2:
        if (one.inbox.size() > 1) std::swap(one.inbox[0], one.inbox[1]);
        return;
      case 3:
        if (!one.inbox.empty()) one.inbox.push_back(one.inbox.front());
        return;
      default: return hostile::put_words(in, one);
    }
  }

  void disturb(std::uint8_t what, program& by) noexcept {
    switch (what % 8) {
      case 0: all_.silent = !all_.silent; return;
      case 1: all_.bind_error = EADDRINUSE; return;
      case 2:
        all_.peer_host = what % 16 < 8 ? in6_addr{} : what % 32 < 16 ? loopback : far_host;
        return;
      case 3: return by.process().die();
      default: all_.peer_host = {}; return;
    }
  }

  void later(std::uint8_t what) noexcept {
    constexpr int steps[] = {1, 10, 100, 2'000, 70'000, 100'000, 10'000'000};
    const std::size_t step = what % 8;
    if (step < std::size(steps))
      all_.now += milliseconds{steps[step]};
    else if (earliest() != node_service::time::max())
      all_.now = earliest();
    run_all();
  }

  [[nodiscard]] node_service::time earliest() noexcept {
    return std::min(programs_[0].process().rdma_cm->deadline(),
                    programs_[1].process().rdma_cm->deadline());
  }

  void run_all() noexcept {
    for (bool any = true; any;) {
      any = hostile_.run();
      for (program& one : programs_) {
        any = one.run() || any;
        must(one.process().rdma_cm->deadline() > all_.now, "a deadline has passed");
      }
    }
  }

  /// Ends each exchange that waits, without another word of a peer.
  void settle() noexcept {
    run_all();
    int n = 0;
    for (; earliest() != node_service::time::max(); ++n) {
      must(n < waits_max, "time goes on for ever");
      all_.now = earliest();
      run_all();
    }
    for (program& one : programs_) {
      one.check();
      one.check_settled();
      one.read_all();
    }
  }

  network all_;
  hostile hostile_{all_};
  std::array<program, 2> programs_;
};

}  // namespace
}  // namespace softverbs::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace softverbs;
  static auto& files = *new std::array<std::array<fuzz::open_file, fuzz::program::files>, 2>;
  fuzz::script in{bytes, size};
  fuzz::stage stage{files};
  stage.run(in);
  return 0;
}
