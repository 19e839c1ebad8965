#include "runtime/environment.hpp"

#include "connection/handshake.hpp"
#include "support/connected_pair.hpp"
#include "support/variable.hpp"

#include <catch2/catch.hpp>

#include <list>
#include <string>

using namespace cordma;
using test::variable;

namespace {

/// Variables of a fabric that are unset, so that a test sees those that it sets itself.
class clean_environment {
 public:
  clean_environment() {
    for (const char* name :
         {"CORDMA_DEVICE", "CORDMA_PORT", "CORDMA_GID_INDEX", "CORDMA_PKEY_INDEX",
          "CORDMA_SERVICE_LEVEL", "CORDMA_MTU", "CORDMA_TRAFFIC_CLASS", "CORDMA_FLOW_LABEL",
          "CORDMA_HOP_LIMIT", "CORDMA_STATIC_RATE"}) {
      unset_.emplace_back(name, nullptr);
    }
  }

 private:
  std::list<variable> unset_;
};

connection_options defaults_of(runtime_options options = {}) {
  return runtime{test::on_test_device(std::move(options))}.connection_defaults();
}

}  // namespace

TEST_CASE("without variables a runtime's options are what the program says", "[runtime][device]") {
  const clean_environment clean;
  const connection_options o = defaults_of();
  CHECK(o.port == 0);
  CHECK_FALSE(o.gid_index);
  CHECK_FALSE(o.pkey_index);
  CHECK_FALSE(o.fabric.service_level);
  CHECK_FALSE(o.fabric.mtu);
  CHECK_FALSE(o.fabric.traffic_class);
  CHECK_FALSE(o.fabric.flow_label);
  CHECK_FALSE(o.fabric.hop_limit);
  CHECK_FALSE(o.fabric.static_rate);
}

TEST_CASE("each variable gives an option that is unset", "[runtime][device]") {
  const clean_environment clean;
  const variable port{"CORDMA_PORT", "1"};
  const variable gid{"CORDMA_GID_INDEX", "0x0"};
  const variable pkey{"CORDMA_PKEY_INDEX", "0"};
  const variable level{"CORDMA_SERVICE_LEVEL", "3"};
  const variable mtu{"CORDMA_MTU", "0x200"};
  const variable traffic{"CORDMA_TRAFFIC_CLASS", "104"};
  const variable flow{"CORDMA_FLOW_LABEL", "0xfffff"};
  const variable hops{"CORDMA_HOP_LIMIT", "255"};
  const variable rate{"CORDMA_STATIC_RATE", "2.5"};
  const connection_options o = defaults_of();
  CHECK(o.port == 1);
  CHECK(o.gid_index == 0);
  CHECK(o.pkey_index == 0);
  CHECK(o.fabric.service_level == 3);
  CHECK(o.fabric.mtu == IBV_MTU_512);
  CHECK(o.fabric.traffic_class == 104);
  CHECK(o.fabric.flow_label == 0xfffff);
  CHECK(o.fabric.hop_limit == 255);
  CHECK(o.fabric.static_rate == IBV_RATE_2_5_GBPS);
}

TEST_CASE("a static rate has the number of its name", "[runtime][device]") {
  const clean_environment clean;
  const verbs::context ctx{test::device_name()};
  for (const auto& [text, mbps] :
       {std::pair{"5", 5000}, std::pair{"14", 14062}, std::pair{"25", 25781},
        std::pair{"100", 103125}, std::pair{"600", 637500}}) {
    const variable rate{"CORDMA_STATIC_RATE", text};
    INFO(text);
    const connection_options o = detail::with_environment({}, ctx);
    REQUIRE(o.fabric.static_rate);
    CHECK(ibv_rate_to_mbps(*o.fabric.static_rate) == mbps);
  }
  const variable rate{"CORDMA_STATIC_RATE", "max"};
  CHECK(detail::with_environment({}, ctx).fabric.static_rate == IBV_RATE_MAX);
}

TEST_CASE("a call's option comes first, then the runtime's, then the environment's",
          "[runtime][connection][device]") {
  const clean_environment clean;
  const variable traffic{"CORDMA_TRAFFIC_CLASS", "4"};
  const variable flow{"CORDMA_FLOW_LABEL", "4"};
  const variable hops{"CORDMA_HOP_LIMIT", "4"};
  runtime_options options;
  options.connections.fabric = {.traffic_class = 8, .flow_label = 8};
  runtime rt{test::on_test_device(std::move(options))};
  listener acceptor = rt.listen({}, {}, {.fabric = {.traffic_class = 0}});
  auto [client, server] =
      rt.run(when_all(rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  const verbs::address_vector& agreed = client.agreement().rtr.peer;
  CHECK(agreed.traffic_class == 0);
  CHECK(agreed.flow_label == 8);
  CHECK(agreed.hop_limit == 4);
  CHECK(agreed.service_level == 0);
}

TEST_CASE("a runtime reads the environment once, when it is made", "[runtime][device]") {
  const clean_environment clean;
  runtime rt{test::on_test_device()};
  const variable level{"CORDMA_SERVICE_LEVEL", "3"};
  const variable wrong{"CORDMA_MTU", "wrong"};
  listener acceptor = rt.listen();
  auto [client, server] =
      rt.run(when_all(rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  CHECK(client.agreement().rtr.peer.service_level == 0);
}

TEST_CASE("a variable whose option is set is not read", "[runtime][device]") {
  const clean_environment clean;
  const variable level{"CORDMA_SERVICE_LEVEL", "wrong"};
  const variable mtu{"CORDMA_MTU", "wrong"};
  runtime_options options;
  options.connections.fabric = {.service_level = 0, .mtu = IBV_MTU_256};
  CHECK(defaults_of(std::move(options)).fabric.mtu == IBV_MTU_256);
}

TEST_CASE("a wrong variable is an error that names it, its text and what is right",
          "[runtime][device][N9]") {
  struct row {
    const char* name;
    const char* text;
    std::string says;
  };
  const clean_environment clean;
  for (const row& r : {
           row{"CORDMA_PORT", "0", "'0' is no number from 1 to "},
           row{"CORDMA_PORT", "254", "'254' is no number from 1 to "},
           row{"CORDMA_GID_INDEX", "256", "'256' is no number from 0 to "},
           row{"CORDMA_GID_INDEX", "first", "'first' is no number from 0 to "},
           row{"CORDMA_PKEY_INDEX", "65536", "'65536' is no number from 0 to "},
           row{"CORDMA_SERVICE_LEVEL", "16", "'16' is no number from 0 to 15, decimal"},
           row{"CORDMA_SERVICE_LEVEL", "", "'' is no number from 0 to 15"},
           row{"CORDMA_MTU", "1500", "'1500' is none of 256, 512, 1024, 2048 and 4096"},
           row{"CORDMA_MTU", "", "'' is none of 256"},
           row{"CORDMA_TRAFFIC_CLASS", "0x100", "'0x100' is no number from 0 to 255"},
           row{"CORDMA_FLOW_LABEL", "1048576", "'1048576' is no number from 0 to 1048575"},
           row{"CORDMA_HOP_LIMIT", "0", "'0' is no number from 1 to 255"},
           row{"CORDMA_STATIC_RATE", "11", "'11' is none of 2.5, 5, 10, 14, 20,"},
           row{"CORDMA_STATIC_RATE", "", "'' is none of 2.5"},
       }) {
    INFO(r.name << "='" << r.text << "'");
    const variable wrong{r.name, r.text};
    CHECK_THROWS_WITH(defaults_of(), Catch::Contains(r.name) && Catch::Contains(r.says));
    try {
      static_cast<void>(defaults_of());
    } catch (const error& e) {
      CHECK(e.code() == std::errc::invalid_argument);
    }
  }
}

TEST_CASE("the environment names the device where the program does not", "[runtime][device]") {
  const clean_environment clean;
  const std::string real{runtime{test::on_test_device()}.device_name()};
  {
    const variable named{"CORDMA_DEVICE", real.c_str()};
    CHECK(runtime{}.device_name() == real);
  }
  {
    const variable wrong{"CORDMA_DEVICE", "nonesuch0"};
    CHECK(runtime{{.device = real}}.device_name() == real);
    CHECK_THROWS_WITH(runtime{}, Catch::Contains("CORDMA_DEVICE: Invalid argument: 'nonesuch0' is "
                                                 "no device here") &&
                                     Catch::Contains(real));
  }
  const variable empty{"CORDMA_DEVICE", ""};
  CHECK_THROWS_WITH(runtime{}, Catch::Contains("'' is no device's name"));
}
