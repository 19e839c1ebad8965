#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

// Where there is no libFuzzer: the same executions, on bytes from a generator with a fixed seed.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

int main(int argc, char** argv) {
  constexpr std::size_t size_max = 512;
  const long runs = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 5'000;
  std::mt19937_64 random{1};
  std::vector<std::uint8_t> bytes;
  for (long n = 0; n < runs; ++n) {
    bytes.resize(random() % (size_max + 1));
    for (auto& one : bytes) one = static_cast<std::uint8_t>(random());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%ld executions\n", runs);
}
