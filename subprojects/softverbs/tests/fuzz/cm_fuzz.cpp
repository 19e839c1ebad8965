#include "cm/entrance.hpp"
#include "cm/names.hpp"
#include "cm/transport.hpp"
#include "fuzz/script.hpp"
#include "link/listeners.hpp"
#include "link/socket_names.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

// Each execution performs a script from the fuzzer's bytes. In the script, a malicious process or
// host talks to the transports of a process, which acts meanwhile. One transport talks by local
// sockets, the other one by TCP.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace softverbs::fuzz {

namespace {

using namespace softverbs::cm;
using clock = std::chrono::steady_clock;

constexpr std::size_t raw_sockets = 6;
constexpr std::size_t talkers = 8;
constexpr int acts_max = 32;  ///< limit of a script
constexpr in6_addr loopback{{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}};

/// Checks what a program may count on, whatever its peers send.
void check(const message& words) noexcept {
  const auto kind = static_cast<unsigned>(words.kind);
  must(words.magic == message::magic_value && words.version == message::version_value,
       "a message of another protocol is shown");
  must(kind >= 1 && kind <= 8, "a message of no kind is shown");
  must(words.qpn < 1u << 24 && words.psn < 1u << 24, "a number has more than 24 bits");
  must(words.private_bytes <= 224, "the private data is too long");
  must(words.retry_count <= 7 && words.rnr_retry_count <= 7, "a retry count has 3 bits");
}

struct talker final : conversation::user {
  std::unique_ptr<conversation> with;
  bool is_over = false;
  bool leaves = false;  ///< destroys the conversation when it hears something

  void on_message(const message& words) noexcept override {
    must(with != nullptr && !is_over, "a message comes after the end");
    must(!words.is_request(), "a request comes within a conversation");
    check(words);
    if (leaves) with.reset();
  }
  void on_end(int error) noexcept override {
    must(with != nullptr && !is_over, "an end comes twice");
    must(error > 0, "an end has no reason");
    is_over = true;
    if (leaves) with.reset();
  }
  void begin(std::unique_ptr<conversation> one) noexcept {
    is_over = false;
    with = std::move(one);
  }
};

class stage final : public transport::listener {
 public:
  stage() {
    ::setenv("SOFTVERBS_PORT", free_port().c_str(), 1);
    near_ = make_transport(*this);
    ::setenv("SOFTVERBS_LINK", "tcp", 1);
    far_ = make_transport(*this);
    must(near_ != nullptr && far_ != nullptr, "no transport");
    port_ = cm_port(tcp_settings_of_environment().port);
    // The transport by TCP holds the port: it is the first one that listens.
    names_[0] = bound(*far_);
    names_[1] = bound(*near_);
    names_[2] = bound(*near_);
    for (std::size_t n = 0; n < 2; ++n) must(names_[n]->listen() == 0, "no listener");
    for (const auto& one : names_) sockets_.push_back(socket_of(*one));
    // A name whose listener is the fuzzer.
    hostile_name_ = {RDMA_PS_TCP, bound(*near_)->at(), false, false};
    int error = 0;
    hostile_listener_ = claim(hostile_name_, -1, error);
    must(hostile_listener_.get() >= 0, "no name for the fuzzer");
    must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair_) == 0, "pair");
    while (drive()) continue;
    first_free_ = first_free();
  }

  void run(script& in) noexcept {
    for (int n = 0; n < acts_max && !in.done(); ++n) perform(in);
    drive();
    for (auto& one : raw_) one.reset();
    for (auto& one : talkers_) one.with.reset();
    while (accept()) continue;
    while (drive()) continue;
    must(first_free() == first_free_, "a descriptor is left");
  }

  void on_request(binding& name, std::unique_ptr<conversation> from,
                  const message& words) noexcept override {
    check(words);
    must(words.is_request(), "a conversation begins with something else than a request");
    must(&name == names_[0].get() || &name == names_[1].get(), "a name that does not listen");
    must(name.at() == words.destination, "a request for another name");
    if (words.qkey % 4 == 3) return;  // The program has no room for it.
    talker& one = talkers_[words.psn % talkers];
    one.begin(std::move(from));
    one.with->set_user(one);
  }

 private:
  enum class act : std::uint8_t {
    connect_local,
    connect_tcp,
    request,
    more_requests,
    say,
    more_sayings,
    bytes,
    pass,
    leave,
    start,
    answer,
    reply,
    destroy,
    habit,
    drive,
    late,
    count
  };

  static std::string free_port() {
    for (;;) {
      const unique_fd probe{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
      sockaddr_in name{};
      name.sin_family = AF_INET;
      socklen_t length = sizeof name;
      must(::bind(probe.get(), reinterpret_cast<sockaddr*>(&name), length) == 0 &&
               ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0,
           "no port");
      if (ntohs(name.sin_port) > process_slots)
        return std::to_string(ntohs(name.sin_port) - process_slots);
    }
  }

  static std::unique_ptr<binding> bound(transport& by) {
    endpoint wanted;
    wanted.address = loopback;
    int error = 0;
    auto name = by.bind(RDMA_PS_TCP, wanted, false, false, error);
    must(name != nullptr, "no name");
    return name;
  }

  /// Looked up once: a look-up costs as much as connecting.
  static socket_name socket_of(const binding& name) {
    int error = 0;
    const unique_fd probe = connect_to_holder(RDMA_PS_TCP, name.at(), error);
    sockaddr_un address{};
    socklen_t length = sizeof address;
    must(::getpeername(probe.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
         "no socket of a name");
    constexpr std::size_t begin = offsetof(sockaddr_un, sun_path) + 1;
    return socket_name{{address.sun_path + 1, length - begin}};
  }

  void perform(script& in) noexcept {
    const auto what = static_cast<act>(in.byte() % static_cast<unsigned>(act::count));
    const std::uint8_t which = in.byte();
    unique_fd& raw = raw_[which % raw_sockets];
    const bool speaks = what >= act::request && what <= act::pass;
    if (speaks && !raw) return connect_local(which, raw);  // No peer is connected yet.
    talker& one = talkers_[which % talkers];
    switch (what) {
      case act::connect_local: connect_local(which, raw); break;
      case act::connect_tcp:
        // Connecting by TCP is dearer than other acts, and so happens more seldom.
        if (which % 4 == 0) connect_tcp(raw);
        break;
      case act::request:
      case act::more_requests: send(raw, lie(in, request_to(in.byte()))); break;
      case act::say:
      case act::more_sayings: send(raw, lie(in, saying(in.byte()))); break;
      case act::bytes: send_bytes(in, raw); break;
      case act::pass: pass(in, raw); break;
      case act::leave: raw.reset(); break;
      case act::start: start(in.byte(), one); break;
      case act::answer: answer(in, raw); break;
      case act::reply:
        if (one.with) one.with->send(saying(in.byte()));
        break;
      case act::destroy: one.with.reset(); break;
      case act::habit: one.leaves = which >= 128; break;
      case act::drive: drive(); break;
      case act::late: drive(request_time_max); break;
      case act::count: break;
    }
  }

  void connect_local(std::uint8_t which, unique_fd& raw) noexcept {
    raw = connect_to(sockets_[which / 64 % sockets_.size()]);
  }

  void connect_tcp(unique_fd& raw) noexcept {
    if (!softverbs::connect_tcp(loopback, port_, raw)) return;
    // The socket ends by a reset, so that no port waits for stray packets.
    const linger at_once{1, 0};
    ::setsockopt(raw.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    pollfd one{raw.get(), POLLOUT, 0};
    ::poll(&one, 1, -1);
  }

  [[nodiscard]] message request_to(std::uint8_t which) const noexcept {
    message words = saying(which);
    words.kind = message_kind::request;
    words.space = RDMA_PS_TCP;
    words.source = names_[2]->at();
    words.destination = which / 8 % 4 == 3 ? hostile_name_.at : names_[which / 8 % 4]->at();
    words.qkey = which / 32;
    return words;
  }

  static message saying(std::uint8_t which) noexcept {
    message words;
    words.kind = static_cast<message_kind>(2 + which % 5);
    words.psn = which % talkers;
    words.reason = which / 16;
    words.private_bytes = which / 2;
    return words;
  }

  /// Changes a few bytes; most often none.
  static message lie(script& in, const message& honest) noexcept {
    constexpr unsigned lies_max = 3;
    const unsigned lies = in.byte();
    if (lies > lies_max) return honest;
    message words = honest;
    auto* const bytes = reinterpret_cast<std::uint8_t*>(&words);
    constexpr std::size_t mostly = offsetof(message, private_data);
    for (unsigned n = 0; n < lies; ++n) {
      const std::size_t at = in.take<std::uint16_t>() % mostly;
      bytes[at] = static_cast<std::uint8_t>(bytes[at] ^ in.byte());
    }
    return words;
  }

  static void send(const unique_fd& raw, const message& words) noexcept {
    (void)!::send(raw.get(), &words, sizeof words, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  void send_bytes(script& in, const unique_fd& raw) const noexcept {
    std::array<message, 2> words{request_to(in.byte()), saying(in.byte())};
    words[0] = lie(in, words[0]);
    const auto* bytes = reinterpret_cast<const std::byte*>(words.data());
    const std::size_t begin = in.take<std::uint16_t>() % sizeof(message);
    const std::size_t count = in.take<std::uint16_t>() % (sizeof words - begin);
    (void)!::send(raw.get(), bytes + begin, count, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  /// A request with descriptors, as the holder of the port sends it.
  void pass(script& in, const unique_fd& raw) const noexcept {
    message words = lie(in, request_to(in.byte()));
    const std::uint8_t what = in.byte();
    const unique_fd& stream = raw_[what / 4 % raw_sockets];
    const std::array<int, 2> fds{what % 4 == 0 || !stream ? pair_[0] : stream.get(), pair_[1]};
    const std::size_t count = what % 16 == 15 ? 2 : 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)]{};
    iovec part{&words, sizeof words};
    msghdr packet{};
    packet.msg_iov = &part;
    packet.msg_iovlen = 1;
    packet.msg_control = control;
    packet.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* const rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * count);
    (void)!::sendmsg(raw.get(), &packet, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  void start(std::uint8_t which, talker& one) noexcept {
    // Requests by TCP are dear, and so are seldom. Each goes to a listener, since a request to
    // nobody takes two seconds.
    const bool by_tcp = which % 16 == 0;
    message words = request_to(by_tcp ? 0 : which);
    words.psn = which % talkers;
    one.with.reset();
    one.is_over = false;
    one.with = (by_tcp ? far_ : near_)->start(words, one);
  }

  [[nodiscard]] unique_fd accept() const noexcept {
    return unique_fd{
        ::accept4(hostile_listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  }

  static int first_free() noexcept {
    const unique_fd probe{::fcntl(0, F_DUPFD_CLOEXEC, 0)};
    return probe.get();
  }

  /// The fuzzer accepts as a listener, and answers.
  void answer(script& in, unique_fd& raw) const noexcept {
    if (unique_fd peer = accept()) raw = std::move(peer);
    send(raw, lie(in, saying(in.byte())));
  }

  /// Runs a transport if it has something to do, as the engine does. True if it was readable.
  static bool drive(transport& one, const pollfd& polled, clock::time_point now) noexcept {
    const bool is_ready = polled.revents != 0;
    if (is_ready || one.deadline() <= now) one.run(now);
    return is_ready;
  }

  /// Runs both transports once. True if one was readable.
  bool drive(std::chrono::seconds later = {}) noexcept {
    std::array<pollfd, 2> both{{{near_->descriptor(), POLLIN, 0}, {far_->descriptor(), POLLIN, 0}}};
    (void)::poll(both.data(), both.size(), 0);
    const clock::time_point now = clock::now() + later;
    const bool is_near_ready = drive(*near_, both[0], now);
    return drive(*far_, both[1], now) || is_near_ready;
  }

  std::unique_ptr<transport> near_, far_;
  std::uint16_t port_ = 0;
  std::array<std::unique_ptr<binding>, 3> names_;  ///< the last one does not listen
  std::vector<socket_name> sockets_;               ///< sockets of `names_`
  bound_name hostile_name_;
  unique_fd hostile_listener_;
  int pair_[2]{};
  std::array<unique_fd, raw_sockets> raw_;
  std::array<talker, talkers> talkers_;
  int first_free_ = 0;
};

}  // namespace
}  // namespace softverbs::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static auto& stage = *new softverbs::fuzz::stage;
  softverbs::fuzz::script in{bytes, size};
  stage.run(in);
  return 0;
}
