#include "security/tls_channel.hpp"

#include "security/certificates.hpp"
#include "security/tls_pair.hpp"
#include "security/values.hpp"

using namespace cordma;
using namespace cordma::test;

TEST_CASE("two sides with the same key know each other by its id", "[security]") {
  const credentials key = blue();
  tls_pair p{key, key};
  p.connect();
  CHECK(p.client.peer().kind == authentication::psk);
  CHECK(p.client.peer().name == "blue");
  CHECK(p.server.peer().kind == authentication::psk);
  CHECK(p.server.peer().name == "blue");
}

TEST_CASE("two sides with certificates of one authority know each other by name", "[security]") {
  const authority ca;
  const credentials client = ca.issue({.names = "DNS:client.example"});
  const credentials server = ca.issue();
  tls_pair p{client, server};
  p.connect();
  CHECK(p.client.peer().kind == authentication::certificate);
  CHECK(p.client.peer().name == "server.example");
  CHECK(p.server.peer().kind == authentication::certificate);
  CHECK(p.server.peer().name == "client.example");
}

TEST_CASE("bytes of any number go through TLS in both directions at once", "[security]") {
  const credentials key = blue();
  for (const std::size_t size : {0u, 1u, 127u, 16'384u, 16'385u, 1u << 20}) {
    tls_pair p{key, key};
    p.connect();
    const std::vector<std::byte> sent = numbered(size);
    std::vector<std::byte> to_client(size);
    std::vector<std::byte> to_server(size);
    p.executor.run(when_all(write_all(p.client, sent), write_all(p.server, sent),
                            read_exactly(p.client, to_client), read_exactly(p.server, to_server)));
    CHECK(to_client == sent);
    CHECK(to_server == sent);
  }
}
