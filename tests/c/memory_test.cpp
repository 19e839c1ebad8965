#include "c/c_pair.hpp"

#include <vector>

using namespace cordma::test;

TEST_CASE("memory is zeroed, aligned, and named only within its bounds", "[c][device]") {
  const c_pair both;
  const c_memory memory{both.client, 100};
  CHECK(std::string(memory.text, 100) == std::string(100, '\0'));
  CHECK(reinterpret_cast<std::uintptr_t>(memory.text) % 64 == 0);
  CHECK(cordma_send(both.here, memory, 90, 11, long_us) == CORDMA_OUT_OF_RANGE);
  CHECK(cordma_send(both.here, memory, 101, 0, long_us) == CORDMA_OUT_OF_RANGE);
  CHECK(cordma_send(both.here, memory, SIZE_MAX, 2, long_us) == CORDMA_OUT_OF_RANGE);
  CHECK_OK(cordma_send(both.here, memory, 90, 10, long_us));
}

TEST_CASE("memory of the program's own is registered", "[c][device]") {
  const c_pair both;
  std::vector<char> own(4096, 'x');
  cordma_memory memory = nullptr;
  CHECK_OK(cordma_register(both.client, own.data(), own.size(), CORDMA_LOCAL, &memory));
  CHECK_OK(cordma_send(both.here, memory, 1000, 3, long_us));
  CHECK(both.received_there() == "xxx");
  CHECK_OK(cordma_free(memory));
}

TEST_CASE("memory without remote access has no name", "[c][device]") {
  const c_context context;
  const c_memory memory{context, 64};
  std::array<char, CORDMA_NAME_BYTES> name{};
  CHECK(cordma_export(memory, name.data()) == CORDMA_ACCESS_DENIED);
}

TEST_CASE("what cannot be allocated or registered gives an error", "[c][device]") {
  const c_context context;
  cordma_memory memory = nullptr;
  void* at = nullptr;
  CHECK(cordma_allocate(context, 0, CORDMA_LOCAL, &memory, &at) == CORDMA_OUT_OF_RANGE);
  CHECK(cordma_allocate(context, SIZE_MAX, CORDMA_LOCAL, &memory, &at) != CORDMA_OK);
  CHECK(cordma_allocate(context, 64, 8, &memory, &at) == CORDMA_BAD_ARGUMENT);
  CHECK(cordma_allocate(context, 64, CORDMA_LOCAL, nullptr, &at) == CORDMA_BAD_ARGUMENT);
  CHECK(cordma_register(context, nullptr, 64, CORDMA_LOCAL, &memory) == CORDMA_BAD_ARGUMENT);
  CHECK(memory == nullptr);
  CHECK(at == nullptr);
}

TEST_CASE("the peer's memory is borrowed, used and returned", "[c][device]") {
  cordma_options lends = on_device(CORDMA_THREAD);
  lends.lend_bytes_max = 1 << 20;
  const c_pair both{on_device(), lends};
  cordma_remote remote = nullptr;
  CHECK_OK(cordma_request(both.here, 4096, 10'000'000, long_us, &remote));
  const c_memory memory{both.client, 64};
  memory.put("borrowed");
  CHECK_OK(cordma_write(both.here, memory, 0, 8, remote, 4000, long_us));
  CHECK_OK(cordma_read(both.here, memory, 32, 8, remote, 4000, long_us));
  CHECK(std::string(memory.text + 32, 8) == "borrowed");
  CHECK(cordma_write(both.here, memory, 0, 8, remote, 4089, long_us) == CORDMA_OUT_OF_RANGE);
  CHECK_OK(cordma_return(remote));
  CHECK(cordma_return(remote) == CORDMA_BAD_HANDLE);
}

TEST_CASE("a peer that lends nothing refuses", "[c][device]") {
  const c_pair both;
  cordma_remote remote = nullptr;
  CHECK(cordma_request(both.here, 4096, 10'000'000, long_us, &remote) == CORDMA_ACCESS_DENIED);
  CHECK(remote == nullptr);
  CHECK(cordma_request(both.here, 4096, 0, long_us, &remote) == CORDMA_BAD_ARGUMENT);
}

TEST_CASE("a name that the peer never gave reaches nothing, and ends the connection",
          "[c][device]") {
  const c_pair both;
  const c_memory mine{both.client, 64};
  std::array<unsigned char, CORDMA_NAME_BYTES> made_up{};
  made_up.fill(0x11);
  cordma_remote remote = nullptr;
  CHECK_OK(cordma_import(both.here, made_up.data(), &remote));
  constexpr int remote_access = 10;  // IBV_WC_REM_ACCESS_ERR
  CHECK(cordma_write(both.here, mine, 0, 8, remote, 0, long_us) == CORDMA_WC + remote_access);
  CHECK(cordma_send(both.here, mine, 0, 8, long_us) == CORDMA_DISCONNECTED);
}

TEST_CASE("memory of one connection's peer is not reached by another", "[c][device]") {
  const c_pair both;
  cordma_connection second = nullptr;
  CHECK_OK(cordma_connect(both.client, both.server.address.c_str(), long_us, &second));
  const c_memory theirs{both.server.context, 64, CORDMA_REMOTE_WRITE};
  const c_memory mine{both.client, 64};
  CHECK(cordma_write(second, mine, 0, 8, both.named(theirs), 0, long_us) == 24);
}
