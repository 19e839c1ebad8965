#include "cm/transport.hpp"

#include "cm/entrance.hpp"
#include "cm/kernel_abi.hpp"
#include "cm/message_check.hpp"
#include "cm/names.hpp"
#include "cm/poller.hpp"
#include "cm/socket_conversation.hpp"
#include "link/ip_address.hpp"
#include "link/listeners.hpp"
#include "link/socket_names.hpp"
#include "link/tcp_listener.hpp"
#include "node/gid_table.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>
#include <vector>

namespace softverbs::cm {

namespace {

/// Ephemeral ports, as Linux has them unless it is told otherwise.
constexpr std::uint16_t first_ephemeral = 32768;
constexpr std::uint16_t last_ephemeral = 60999;
constexpr int ephemeral_tries_max = 256;
/// How often a process that listens tries to become the holder of the port.
constexpr std::chrono::milliseconds claim_period{250};

bool is_own(const in6_addr& address) noexcept {
  ibv_gid gid;
  std::memcpy(&gid, &address, sizeof gid);
  return is_own_address(gid);
}

class socket_transport;

class name_binding final : public binding {
 public:
  name_binding(socket_transport& by, const bound_name& name) noexcept;
  ~name_binding() override;
  [[nodiscard]] bool open(unique_fd socket) noexcept { return acceptor_.open(std::move(socket)); }

  [[nodiscard]] const endpoint& at() const noexcept override { return name_.at; }
  int listen() noexcept override;
  [[nodiscard]] const bound_name& name() const noexcept { return name_; }

 private:
  socket_transport& transport_;
  bound_name name_;
  bool listens_ = false;
  acceptor acceptor_;
};

class socket_transport final : public transport, private entrance::host {
 public:
  explicit socket_transport(transport::listener& owner)
      : listener_{owner}, tcp_{tcp_settings_of_environment()} {
    const char* link = std::getenv("SOFTVERBS_LINK");
    tcp_forced_ = link != nullptr && std::strcmp(link, "tcp") == 0;
    read_any_uid();
  }
  [[nodiscard]] bool open() noexcept { return poller_.open(); }

  // ---- transport
  std::unique_ptr<binding> bind(std::uint16_t space, const endpoint& wanted, bool v6_only,
                                bool reuse, int& error) noexcept override;
  std::unique_ptr<conversation> start(const message& request,
                                      conversation::user& owner) noexcept override;

  // ---- node_service
  [[nodiscard]] int descriptor() const noexcept override { return poller_.descriptor(); }
  void run(time now) noexcept override { poller_.run(now); }
  [[nodiscard]] time deadline() const noexcept override { return poller_.deadline(); }
  void abandon() noexcept override { poller_.abandon(); }

  // ---- bindings
  [[nodiscard]] poller& events() noexcept { return poller_; }
  [[nodiscard]] entrance& incoming() noexcept { return entrance_; }
  int add(name_binding& one) noexcept;
  void remove(name_binding& one) noexcept;

 private:
  /// The well-known port, while a name of this process listens.
  class held_port final : private watched {
   public:
    held_port(poller& by, entrance& into, const tcp_settings& tcp) noexcept
        : watched{by}, acceptor_{by, into, false}, tcp_{tcp} {}
    void claim(time now) noexcept;
    void give_up() noexcept;

   private:
    void on_event(std::uint32_t, time) noexcept override {}
    void on_time(time now) noexcept override { claim(now); }
    void close_copies() noexcept override {}

    acceptor acceptor_;
    const tcp_settings& tcp_;
  };

  // ---- entrance::host
  bool admit(arrival& from) noexcept override;
  void on_arrival(arrival&& from, const message& request) noexcept override;

  std::unique_ptr<name_binding> bind_at(const bound_name& name, int& error) noexcept;
  name_binding* find(const message& request) noexcept;
  static bool pass_on(const arrival& from, const message& request) noexcept;
  static void refuse(const arrival& from, const message& request, bool is_full) noexcept;

  transport::listener& listener_;
  const tcp_settings tcp_;
  bool tcp_forced_ = false;
  poller poller_;
  entrance entrance_{poller_, *this};
  held_port port_{poller_, entrance_, tcp_};
  std::vector<name_binding*> listening_;
  conversation_count conversations_;
};

// ---- names

name_binding::name_binding(socket_transport& by, const bound_name& name) noexcept
    : transport_{by}, name_{name}, acceptor_{by.events(), by.incoming(), true} {}

name_binding::~name_binding() {
  if (listens_) transport_.remove(*this);
}

int name_binding::listen() noexcept {
  if (listens_) return 0;
  if (name_.reuse) {
    // A name that may be shared becomes ours alone.
    bound_name own = name_;
    own.reuse = false;
    int error = 0;
    unique_fd socket = claim(own, acceptor_.descriptor(), error);
    if (!socket) return error;
    if (!acceptor_.open(std::move(socket))) return ENOMEM;
    name_ = own;
  }
  const int error = transport_.add(*this);
  listens_ = error == 0;
  return error;
}

std::unique_ptr<binding> socket_transport::bind(std::uint16_t space, const endpoint& wanted,
                                                bool v6_only, bool reuse, int& error) noexcept {
  if (!poller_.is_open()) {
    error = EIO;
    return nullptr;
  }
  bound_name name{space, wanted, v6_only && !is_mapped(wanted.address), reuse};
  if (wanted.port != 0) return bind_at(name, error);
  for (int n = 0; n < ephemeral_tries_max; ++n) {
    std::uint64_t random = 0;
    if (!make_random(random)) break;
    constexpr std::uint64_t ports = last_ephemeral - first_ephemeral + 1;
    name.at.port = static_cast<std::uint16_t>(first_ephemeral + random % ports);
    name.reuse = false;  // A port that was chosen for a program is not shared.
    if (auto bound = bind_at(name, error)) return bound;
    if (error != EADDRINUSE && error != EADDRNOTAVAIL) return nullptr;
  }
  error = EADDRNOTAVAIL;
  return nullptr;
}

std::unique_ptr<name_binding> socket_transport::bind_at(const bound_name& name,
                                                        int& error) noexcept {
  unique_fd socket = claim(name, -1, error);
  if (!socket) return nullptr;
  std::unique_ptr<name_binding> bound{new (std::nothrow) name_binding{*this, name}};
  if (bound && bound->open(std::move(socket))) return bound;
  error = ENOMEM;
  return nullptr;
}

int socket_transport::add(name_binding& one) noexcept {
  try {
    listening_.push_back(&one);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  if (listening_.size() == 1) port_.claim(std::chrono::steady_clock::now());
  return 0;
}

void socket_transport::remove(name_binding& one) noexcept {
  std::erase(listening_, &one);
  if (listening_.empty()) port_.give_up();
}

name_binding* socket_transport::find(const message& request) noexcept {
  const auto found = std::ranges::find_if(listening_, [&](const name_binding* one) {
    return covers(one->name(), request.space, request.destination);
  });
  return found != listening_.end() ? *found : nullptr;
}

// ---- the well-known port

void socket_transport::held_port::claim(time now) noexcept {
  if (acceptor_.is_open()) return;
  unique_fd socket = open_tcp_listener(tcp_.listen, cm_port(tcp_.port));
  if (!socket || !acceptor_.open(std::move(socket))) set_deadline(now + claim_period);
}

void socket_transport::held_port::give_up() noexcept {
  acceptor_.close();
  set_deadline(time::max());
}

// ---- requests

std::unique_ptr<conversation> socket_transport::start(const message& request,
                                                      conversation::user& owner) noexcept {
  if (!poller_.is_open() || conversations_.is_full()) return nullptr;
  route to;
  const bool is_near = is_own(request.destination.address);
  to.by_tcp = !is_near || tcp_forced_;
  to.host = is_near ? tcp_.listen : request.destination.address;
  to.port = cm_port(tcp_.port);
  to.from_source = !is_near && !is_wildcard(request.source.address);
  if (!is_near) to.peer_host = to.host;
  std::unique_ptr<socket_conversation> made{
      new (std::nothrow) socket_conversation{poller_, conversations_, request, to, owner}};
  if (!made || !made->begin(std::chrono::steady_clock::now())) return nullptr;
  return made;
}

/// Other hosts reach us only at the address that we listen at. Processes of this host use the
/// sockets of names, which know their owners.
bool socket_transport::admit(arrival& from) noexcept {
  if (is_own(from.from.peer_host)) {
    from.from.peer_host = this_host;
    return tcp_forced_;
  }
  return !from.passed_on || is_wildcard(tcp_.listen) || same(tcp_.listen, from.local);
}

void socket_transport::on_arrival(arrival&& from, const message& request) noexcept {
  // A remote peer is its address, and wants the address that it found us at.
  if (!same(from.from.peer_host, this_host) &&
      (!same(request.source.address, from.from.peer_host) ||
       !same(request.destination.address, from.local)))
    return;
  name_binding* const name = find(request);
  if (name == nullptr) {
    if (from.by_unix || !pass_on(from, request)) refuse(from, request, false);
    return;
  }
  if (!conversations_.has_room_for(from.from.peer_host)) return refuse(from, request, true);
  std::unique_ptr<conversation> made{new (std::nothrow) socket_conversation{
      poller_, conversations_, std::move(from.socket), from.from}};
  if (made) listener_.on_request(*name, std::move(made), request);
}

/// Gives the socket to the process that has the name. False: nobody has it.
bool socket_transport::pass_on(const arrival& from, const message& request) noexcept {
  int error = 0;
  const unique_fd to = connect_to_holder(request.space, request.destination, error);
  if (!to) return error != ECONNREFUSED;
  (void)send_with_descriptor(to.get(), &request, sizeof request, from.socket.get());
  return true;
}

/// Tells the requester that nobody has the name, or that the process has too many conversations.
/// The socket is new: it takes the message.
void socket_transport::refuse(const arrival& from, const message& request, bool is_full) noexcept {
  message words;
  words.kind = message_kind::reject;
  words.reason = reason_no_listener;
  if (is_full && request.kind == message_kind::sidr_request) {
    words.kind = message_kind::sidr_reply;
    words.reason = static_cast<std::uint16_t>(sidr_status::reject);
  } else if (is_full) {
    words.reason = static_cast<std::uint16_t>(reject_reason::no_resources);
  }
  (void)!::send(from.socket.get(), &words, sizeof words, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

std::unique_ptr<transport> make_transport(transport::listener& owner) noexcept {
  try {
    auto made = std::make_unique<socket_transport>(owner);
    if (made->open()) return made;
  } catch (const std::exception&) {
    // Out of memory; or settings are malformed, for which the node did not start either.
  }
  return nullptr;
}

}  // namespace softverbs::cm
