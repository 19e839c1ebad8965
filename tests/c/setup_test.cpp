#include "c/c_pair.hpp"

#include <string>
#include <vector>

using namespace cordma::test;

namespace {

int made_with(const cordma_options& options) {
  cordma_context context = nullptr;
  const int status = cordma_init(&options, &context);
  if (status == CORDMA_OK)
    CHECK_OK(cordma_release(context, long_us));
  else
    CHECK(context == nullptr);
  return status;
}

template <class F>
int changed(F change) {
  cordma_options options = on_device();
  change(options);
  return made_with(options);
}

}  // namespace

TEST_CASE("a wrong option gives an error that names it", "[c][device]") {
  CHECK(cordma_init(nullptr, nullptr) == CORDMA_BAD_ARGUMENT);
  CHECK(changed([](auto& o) { o.struct_bytes = 0; }) == CORDMA_BAD_ARGUMENT);
  CHECK_THAT(cordma_error_text(), Catch::Contains("struct_bytes"));
  CHECK(changed([](auto& o) { o.progress = 3; }) == CORDMA_BAD_ARGUMENT);
  CHECK_THAT(cordma_error_text(), Catch::Contains("progress"));
  CHECK(changed([](auto& o) { o.loop = -1; }) == CORDMA_BAD_ARGUMENT);
  CHECK(changed([](auto& o) { o.receives = 4097; }) == CORDMA_BAD_ARGUMENT);
  CHECK(changed([](auto& o) { o.receive_bytes = ~0u; }) == CORDMA_BAD_ARGUMENT);
  CHECK(changed([](auto& o) { o.pins = 1; }) == CORDMA_BAD_ARGUMENT);
  CHECK(changed([](auto& o) {
          o.loop = CORDMA_DESCRIPTOR;
          o.progress = CORDMA_BUSY;
        }) == CORDMA_BAD_ARGUMENT);
  for (const int level : {-1, 5}) {
    CHECK(changed([&](auto& o) { o.log_level = level; }) == CORDMA_BAD_ARGUMENT);
    CHECK_THAT(cordma_error_text(), Catch::Contains("log_level"));
  }
}

TEST_CASE("a context tells its program's function of events, by lines", "[c][device]") {
  for (const int least : {0, int{CORDMA_LOG_ERROR}}) {
    std::vector<std::string> lines;
    cordma_options options = on_device();
    options.log = [](int level, const char* line, void* user) {
      static_cast<std::vector<std::string>*>(user)->push_back(std::to_string(level) + line);
    };
    options.log_user = &lines;
    options.log_level = least;
    {
      const c_context context{options};
      cordma_listener listener = nullptr;
      CHECK_OK(cordma_listen(context, nullptr, &listener));
    }
    REQUIRE(lines.size() == (least == 0 ? 2 : 0));
    if (least != 0) continue;
    CHECK(lines[0].front() == '0' + CORDMA_LOG_INFO);
    CHECK_THAT(lines[0], Catch::Contains(" info listening local=127.0.0.1:"));
    CHECK_THAT(lines[1], Catch::Contains(" info listener_closed local=127.0.0.1:"));
  }
}

TEST_CASE("a device that is not there is no device", "[c]") {
  cordma_options options = CORDMA_OPTIONS;
  options.device = "no_such_device";
  for (const int loop : {CORDMA_CALLS, CORDMA_THREAD, CORDMA_DESCRIPTOR}) {
    options.loop = loop;
    CHECK(made_with(options) == CORDMA_NO_DEVICE);
    CHECK_THAT(cordma_error_text(), Catch::Contains("no_such_device"));
  }
}

TEST_CASE("the context's own thread stays on the CPU that an option names", "[c][device]") {
  CHECK(changed([](auto& o) {
          o.loop = CORDMA_THREAD;
          o.pins = 1;
          o.cpu = 100'000;
        }) == CORDMA_ERRNO + EINVAL);
  CHECK_THAT(cordma_error_text(), Catch::Contains("100000"));
  CHECK(changed([](auto& o) {
          o.loop = CORDMA_THREAD;
          o.pins = 1;
        }) == CORDMA_OK);
}

TEST_CASE("an address that is none, or that nobody listens on, gives an error", "[c][device]") {
  const c_context context{CORDMA_CALLS};
  cordma_connection made = nullptr;
  CHECK(cordma_connect(context, "no address", long_us, &made) == CORDMA_ERRNO + EINVAL);
  CHECK(cordma_connect(context, nullptr, long_us, &made) == CORDMA_BAD_ARGUMENT);
  CHECK(cordma_connect(context, "unix:@cordma-c-nobody", long_us, &made) ==
        CORDMA_ERRNO + ECONNREFUSED);
  CHECK(made == nullptr);
  cordma_listener listener = nullptr;
  CHECK(cordma_listen(context, "192.0.2.1:0", &listener) != CORDMA_OK);
  CHECK(listener == nullptr);
  CHECK_OK(cordma_listen(context, nullptr, &listener));
  std::array<char, 4> small{};
  CHECK(cordma_address(listener, small.data(), small.size()) == CORDMA_WRONG_LENGTH);
}
