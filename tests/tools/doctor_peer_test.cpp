// cordma-doctor with a peer: two processes, and networks with faults.

#include "doctor/peer.hpp"
#include "doctor/server.hpp"

#include "support/commands.hpp"
#include "support/connected_pair.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/variable.hpp"
#include "tools/folders.hpp"

#include <catch2/catch.hpp>

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

using namespace cordma::test;
using Catch::Matchers::Contains;
using doctor::severity;

namespace {

/// The largest MTU whose packets the network carries: longer ones go to nobody.
std::atomic<int> network_mtu = IBV_MTU_4096;

using modify_function = int (*)(ibv_qp*, ibv_qp_attr*, int);

modify_function real_modify() {
  static const auto function =
      reinterpret_cast<modify_function>(dlvsym(RTLD_NEXT, "ibv_modify_qp", "IBVERBS_1.1"));
  if (function == nullptr) std::abort();
  return function;
}

}  // namespace

/// Interposes libibverbs': a queue pair with too large an MTU gets a peer that is not there.
extern "C" int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if ((mask & IBV_QP_PATH_MTU) == 0 || attr->path_mtu <= network_mtu)
    return real_modify()(qp, attr, mask);
  ibv_qp_attr lost = *attr;
  lost.dest_qp_num = 0xfffffe;
  return real_modify()(qp, &lost, mask);
}

namespace {

/// A server in a process of its own, on a port that the kernel chose.
struct doctor_process {
  explicit doctor_process(const std::vector<std::string>& more = {}) : process{words(more)} {
    address = process.line_after("listening on ");
  }
  static std::vector<std::string> words(const std::vector<std::string>& more) {
    std::vector<std::string> all{CORDMA_DOCTOR, "--serve",  "--port",
                                 "0",           "--device", device_name()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  [[nodiscard]] outcome ask(const std::string& environment, const std::string& options = "") const {
    return run(environment + ' ' + CORDMA_DOCTOR + " --device " + device_name() + ' ' + options +
               ' ' + address);
  }
  background process;
  std::string address;
};

/// A server in a thread of this process, until it is destroyed.
class doctor_thread {
 public:
  doctor_thread() : thread_{[this] { serve(); }} { port_ = told_.get_future().get(); }
  doctor_thread(const doctor_thread&) = delete;
  doctor_thread& operator=(const doctor_thread&) = delete;
  ~doctor_thread() {
    executor_->post([this]() noexcept { end_.set(); });
    thread_.join();
  }
  [[nodiscard]] cordma::endpoint endpoint() const { return {"127.0.0.1", port_}; }

 private:
  void serve() {
    cordma::runtime rt{on_test_device()};
    doctor::server here{rt, {"127.0.0.1", 0}, "the device of a thread"};
    executor_ = &rt.executor();
    told_.set_value(here.local_endpoint().port);
    static_cast<void>(rt.run(cordma::when_any(here.serve(), end_.wait())));
  }

  std::promise<std::uint16_t> told_;
  cordma::executor* executor_ = nullptr;
  cordma::event end_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace

namespace {

/// Restores the network when the test ends.
struct faulty_network {
  explicit faulty_network(int mtu_max) { network_mtu = mtu_max; }
  faulty_network(const faulty_network&) = delete;
  faulty_network& operator=(const faulty_network&) = delete;
  ~faulty_network() { network_mtu = IBV_MTU_4096; }
};

doctor::report report_with(const doctor_thread& there, cordma::runtime& rt) {
  doctor::report r;
  doctor::try_peer(rt, there.endpoint(), r);
  return r;
}

std::string all_text(const doctor::report& r) {
  std::string text;
  for (const doctor::finding& f : r.all())
    text += std::string{to_string(f.severity)} + ' ' + f.check + ": " + f.value + '\n';
  return text;
}

}  // namespace

TEST_CASE("cordma-doctor tries all with a peer, in both directions", "[tools][device]") {
  const doctor_process server;
  const outcome ran = server.ask("");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Contains("0 error, "));
  for (const char* check :
       {"peer.handshake", "peer.retries", "peer.reach", "peer.mtu", "peer.to.late_receive",
        "peer.from.late_receive", "peer.rnr_retry", "peer.silence"}) {
    CHECK_THAT(ran.output, Contains(std::string{"ok       "} + check + ' '));
  }
  for (const char* direction : {"peer.to.", "peer.from."}) {
    for (const doctor::operation op : doctor::transfers) {
      CHECK_THAT(ran.output, Contains(std::string{" "} + direction + to_string(op) + ' '));
    }
  }
}

TEST_CASE("cordma-doctor's JSON names the peer", "[tools][device]") {
  const doctor_process server;
  const outcome ran = server.ask("", "--json");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Contains("\"peer\": \"" + server.address + "\"") &&
                             Contains("\"check\": \"peer.mtu\", \"severity\": \"ok\""));
}

TEST_CASE("a peer that sets an MTU of its own is tried with all", "[tools][device]") {
  const variable mtu{"CORDMA_MTU", "512"};
  const doctor_process server;
  const outcome ran = server.ask("");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Contains("ok       peer.mtu "));
}

TEST_CASE("a peer that does not serve is named, with the command that it lacks",
          "[tools][device]") {
  doctor_process server;
  server.process.kill();
  const outcome ran = server.ask("");
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Contains("error    peer.handshake ") && Contains("Connection refused") &&
                             Contains("cordma-doctor --serve") && !Contains("peer.mtu"));
}

TEST_CASE("a peer on another kind of network is named", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("the link layer of a real port is what it is");
  const doctor_process server;
  const outcome ran = server.ask("SOFTVERBS_LINK_LAYER=infiniband SOFTVERBS_LID=1");
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Contains("error    peer.handshake ") && Contains("link layer") &&
                             Contains("make both sides agree"));
}

TEST_CASE("a server of cordma-doctor says that it is insecure, if strangers reach it",
          "[tools][device]") {
  doctor_process server{{"--host", "0.0.0.0"}};
  CHECK_THAT(server.process.line_after("insecure: "), Contains("whoever reaches this address"));
}

TEST_CASE("a server of cordma-doctor refuses other programs, and says why", "[tools][device]") {
  const doctor_thread server;
  cordma::runtime rt{on_test_device()};
  const auto refused = rt.run(cordma::as_result(rt.connect(server.endpoint())));
  REQUIRE(refused.has_failure());
  CHECK(refused.failure().code == cordma::errc::refused);
  CHECK_THAT(refused.failure().to_string(), Contains("here is a cordma-doctor"));
}

TEST_CASE("a network that loses long packets is named with the MTU that works", "[tools][device]") {
  const doctor_thread server;
  cordma::runtime rt{on_test_device()};
  // From here on the agents know what memory windows check. They try it with the port's MTU.
  CHECK(report_with(server, rt).worst() <= severity::note);
  const faulty_network lossy{IBV_MTU_512};
  const doctor::report r = report_with(server, rt);
  INFO(all_text(r));
  const doctor::finding* const mtu = r.find("peer.mtu");
  REQUIRE(mtu != nullptr);
  CHECK(mtu->severity == severity::error);
  CHECK_THAT(mtu->value, Contains("512, and not ") && Contains("as the ports say"));
  CHECK_THAT(mtu->mend, Contains("CORDMA_MTU=512"));
  CHECK(r.count(severity::error) == 1);  // All else works with that MTU.
  CHECK(r.find("peer.from.stream") != nullptr);
}

TEST_CASE("a network that carries no packet is told apart from a refused handshake",
          "[tools][device]") {
  const doctor_thread server;
  cordma::runtime rt{on_test_device()};
  const faulty_network dead{0};
  const doctor::report r = report_with(server, rt);
  INFO(all_text(r));
  REQUIRE(r.find("peer.handshake") != nullptr);
  CHECK(r.find("peer.handshake")->severity == severity::ok);
  const doctor::finding* const reach = r.find("peer.reach");
  REQUIRE(reach != nullptr);
  CHECK(reach->severity == severity::error);
  CHECK_THAT(reach->mend, Contains("UDP port 4791") && Contains("CORDMA_GID_INDEX"));
  CHECK(r.find("peer.mtu") == nullptr);
}

TEST_CASE("the MTU that works is the first from above, and none is an answer", "[tools]") {
  std::vector<int> asked;
  const auto up_to = [&asked](int most) {
    return [&asked, most](ibv_mtu mtu) {
      asked.push_back(mtu);
      return mtu <= most;
    };
  };
  CHECK(doctor::usable_mtu(IBV_MTU_4096, up_to(IBV_MTU_1024)) == IBV_MTU_1024);
  CHECK(asked == std::vector<int>{IBV_MTU_4096, IBV_MTU_2048, IBV_MTU_1024});
  CHECK(doctor::usable_mtu(IBV_MTU_2048, up_to(IBV_MTU_4096)) == IBV_MTU_2048);
  CHECK_FALSE(doctor::usable_mtu(IBV_MTU_512, up_to(0)));
}

TEST_CASE("a handshake that fails is mended by what its error says", "[tools]") {
  const cordma::endpoint server{"host", 7472};
  const auto mend = [&server](std::error_code code) {
    return doctor::mend_of_handshake({.code = code}, server);
  };
  CHECK_THAT(mend(make_error_code(std::errc::connection_refused)),
             Contains("--serve --host ADDRESS --port 7472"));
  CHECK_THAT(mend(make_error_code(cordma::errc::timed_out)), Contains("TCP port 7472"));
  CHECK_THAT(mend(make_error_code(cordma::errc::unknown_host)), Contains("ADDRESS"));
  CHECK_THAT(mend(make_error_code(std::errc::network_unreachable)), Contains("CORDMA_GID_INDEX"));
  CHECK_THAT(mend(make_error_code(cordma::errc::incompatible_peer)), Contains("CORDMA_MTU"));
  CHECK_THAT(mend(make_error_code(cordma::errc::refused)), Contains("run cordma-doctor"));
}
