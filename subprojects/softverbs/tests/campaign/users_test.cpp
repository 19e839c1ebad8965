#include "process.hpp"
#include "rig.hpp"
#include "soak.hpp"

#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

// Two processes of one host: an `owner`, of root, and a `connector`, who is another user.

namespace {

constexpr uid_t another_uid = 65534;
constexpr std::uint64_t secret = 42;

/// A queue pair, and a word that its peer may write.
struct user {
  rig::device device;
  rig::qp_options options{.timeout = 10, .retries = 3};
  std::uint64_t word = 0;
  rig::mr_ptr mr = device.reg(&word, sizeof word);
  rig::cq_ptr cq = device.make_cq(16);
  rig::qp_ptr qp = rig::make_qp(device, cq.get(), cq.get(), options);
  rig::card peer;

  explicit user(int control) {
    rig::to_init(qp.get(), options);
    rig::put(control, rig::card{qp->qp_num, mr->rkey, reinterpret_cast<std::uintptr_t>(&word),
                                device.gid, 0});
    peer = rig::get<rig::card>(control);
    rig::connect(qp.get(), device, peer, options);
    rig::put(control, 'r');
    rig::get<char>(control);
  }
  ibv_wc_status write(std::uint64_t what) {
    word = what;
    rig::request r{IBV_WR_RDMA_WRITE, 1, rig::piece(mr.get(), &word, sizeof word)};
    rig::check(r.to(peer.address, peer.rkey).post(qp.get()), "ibv_post_send");
    return rig::wait_one(cq.get()).status;
  }
};

/// Catches what this process says on stderr while the object lives.
class overheard {
 public:
  overheard() { rig::check(::dup2(file_, STDERR_FILENO) < 0, "dup2"); }
  ~overheard() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(file_);
  }
  overheard(const overheard&) = delete;
  overheard& operator=(const overheard&) = delete;
  [[nodiscard]] std::string text() const {
    std::string said(512, '\0');
    const ssize_t length = ::pread(file_, said.data(), said.size(), 0);
    said.resize(length > 0 ? std::size_t(length) : 0);
    return said;
  }

 private:
  int before_ = ::dup(STDERR_FILENO);
  int file_ = ::memfd_create("stderr", MFD_CLOEXEC);
};

/// The message about another user names both, and the variable that lets them connect.
bool says_how_to_talk(const std::string& said) {
  return said.find("user " + std::to_string(another_uid)) != said.npos &&
         said.find("user 0") != said.npos && said.find("SOFTVERBS_ANY_UID=1") != said.npos;
}

bool keeps_others_out() {
  const char* const said = ::getenv("SOFTVERBS_ANY_UID");
  return said != nullptr && std::string_view{said} == "0";
}

int owner(const std::vector<std::string>& arguments) {
  const int control = rig::first_inherited_fd;
  const overheard ears;
  user self{control};
  rig::get<char>(control);  // The connector has tried.
  rig::expect(says_how_to_talk(ears.text()) == keeps_others_out(), "what the owner says");
  const bool let_in = arguments.at(0) == "let in";
  rig::expect(self.word == (let_in ? secret : 0), "the owner's word");
  return 0;
}
const rig::role owner_role{"users-owner", owner};

int connector(const std::vector<std::string>& arguments) {
  rig::check(::setgid(another_uid), "setgid");
  rig::check(::setuid(another_uid), "setuid");
  const int control = rig::first_inherited_fd;
  const overheard ears;
  user self{control};
  const ibv_wc_status status = self.write(secret);
  const bool let_in = arguments.at(0) == "let in";
  rig::expect(status == (let_in ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR),
              ibv_wc_status_str(status));
  rig::expect(says_how_to_talk(ears.text()) == keeps_others_out(), "what the connector says");
  rig::put(control, 'd');
  return 0;
}
const rig::role connector_role{"users-connector", connector};

/// `0` or `1` is what SOFTVERBS_ANY_UID says to each.
void run_users(const std::string& to_owner, const std::string& to_connector,
               const std::string& outcome) {
  if (::geteuid() != 0) return soak::skip("only root can become another user");
  const std::string variable = "SOFTVERBS_ANY_UID=";
  rig::socket_pair control;
  rig::child owner{"users-owner", {control.ours.get()}, {outcome}, {variable + to_owner}};
  rig::child connector{
      "users-connector", {control.theirs.get()}, {outcome}, {variable + to_connector}};
  control.ours.close();
  control.theirs.close();
  CHECK(connector.wait() == 0);
  CHECK(owner.wait() == 0);
}

constexpr int slots = 1024;
constexpr int first_port = 47000;

template <class Name>
rig::descriptor hold(int family, int type, const Name& name, socklen_t length) {
  rig::descriptor held{::socket(family, type | SOCK_CLOEXEC, 0)};
  rig::check(::bind(held.get(), reinterpret_cast<const sockaddr*>(&name), length), "bind");
  rig::check(::listen(held.get(), SOMAXCONN), "listen");
  return held;
}

/// Another user, who takes every name and port that a listener could have.
int squatter(const std::vector<std::string>&) {
  rlimit files{};
  rig::check(::getrlimit(RLIMIT_NOFILE, &files), "getrlimit");
  files.rlim_cur = files.rlim_max;
  rig::check(::setrlimit(RLIMIT_NOFILE, &files), "setrlimit");
  rig::check(::setuid(another_uid), "setuid");
  std::vector<rig::descriptor> held;
  for (int slot = 0; slot < slots; ++slot) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string text = "softverbs." + std::to_string(slot);
    std::memcpy(name.sun_path + 1, text.data(), text.size());
    held.push_back(hold(AF_UNIX, SOCK_SEQPACKET, name,
                        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())));
    sockaddr_in port{};
    port.sin_family = AF_INET;
    port.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    port.sin_port = htons(static_cast<std::uint16_t>(first_port + slot));
    held.push_back(hold(AF_INET, SOCK_STREAM, port, sizeof port));
  }
  rig::put(rig::first_inherited_fd, 'r');
  for (;;) ::pause();
}
const rig::role squatter_role{"users-squatter", squatter};

int writer(const std::vector<std::string>&) {
  const int control = rig::first_inherited_fd;
  user self{control};
  rig::expect(self.write(secret) == IBV_WC_SUCCESS, "the write to a process of the same user");
  rig::put(control, 'd');
  return 0;
}
const rig::role writer_role{"users-writer", writer};

/// Tells what soft0 says when it cannot be opened.
int refused(const std::vector<std::string>&) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  rig::expect(list != nullptr && ibv_open_device(list[count - 1]) == nullptr,
              "soft0 can be opened");
  ibv_free_device_list(list);
  return errno == EAGAIN ? 0 : errno;
}
const rig::role refused_role{"users-refused", refused};

/// Runs on a host of its own: others run beside this one.
int squatted_host(const std::vector<std::string>&) {
  rig::check(::unshare(CLONE_NEWNET), "unshare");
  rig::expect(std::system("ip link set lo up") == 0, "ip link set lo up");
  rig::socket_pair ready;
  const rig::child squatting{"users-squatter", {ready.theirs.get()}};
  ready.theirs.close();
  rig::get<char>(ready.ours.get());
  rig::socket_pair control;
  rig::child owner{"users-owner", {control.ours.get()}, {"let in"}};
  rig::child writer{"users-writer", {control.theirs.get()}};
  control.ours.close();
  control.theirs.close();
  rig::expect(writer.wait() == 0 && owner.wait() == 0, "two processes of one user do not talk");
  // A process that talks to any user cannot recognize a squatter, but is told which user has the
  // slots.
  rig::child open_to_all{"users-refused", {}, {}, {"SOFTVERBS_ANY_UID=1"}};
  return open_to_all.wait();
}
const rig::role squatted_role{"users-squatted-host", squatted_host};

}  // namespace

TEST_CASE("a user who holds all names and ports keeps nobody else from soft0", "[campaign]") {
  if (::geteuid() != 0) return soak::skip("only root can become another user");
  if (std::system("unshare --net true 2>/dev/null") != 0)
    return soak::skip("no network namespaces here");
  CHECK(rig::child{"users-squatted-host", {}}.wait() == 0);
}

TEST_CASE("the local listener lets nobody of another user in, whatever he says himself",
          "[campaign]") {
  run_users("0", "1", "kept out");
}

TEST_CASE("a process does not talk to one of another user, even one that would listen",
          "[campaign]") {
  run_users("1", "0", "kept out");
}

TEST_CASE("processes of two users talk when both were told that any user will do", "[campaign]") {
  run_users("1", "1", "let in");
}
