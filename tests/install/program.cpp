// A user's program: built outside the tree, against what was installed or as a subproject's user.
// It needs code of the library, of libibverbs and of liburing.
#include <cordma/cordma.hpp>

#include <cstdio>

namespace {

cordma::task<int> answer(cordma::executor& home) {
  co_await home.sleep_for(std::chrono::microseconds{1});
  co_return CORDMA_VERSION_MAJOR;
}

}  // namespace

int main() {
  for (const auto& device : cordma::verbs::list_devices()) std::printf("%s\n", device.name.c_str());
  cordma::executor executor;
  const cordma::failure lost{.code = cordma::errc::disconnected, .call = "poll"};
  std::printf("cordma %d: %s\n", executor.run(answer(executor)), lost.to_string().c_str());
  return lost.remedy() == cordma::remedy_kind::reconnect ? 0 : 1;
}
