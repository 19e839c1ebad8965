#include "support/skip.hpp"
#include "support/temporary_folder.hpp"
#include "verbs/loopback.hpp"
#include "verbs/shared_receive_queue.hpp"

#include <cordma/base/unique_fd.hpp>

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

using namespace cordma::verbs;
using namespace cordma::verbs::test;
using Catch::Matchers::Contains;

namespace {

/// Connects an initiator with a target of `domain`.
struct halves {
  halves(loopback& l, xrc_domain& domain)
      : initiator{l.pd,
                  l.cq,
                  l.cq,
                  {.send_wr_max = 4},
                  nullptr,
                  nullptr,
                  queue_pair_type::xrc_initiator},
        target{domain} {
    for (queue_pair* const half : {&initiator, &target}) half->to_init(l.port.number);
    rtr_attributes rtr = l.rtr();
    rtr.dest_qpn = target.num();
    initiator.to_rtr(rtr);
    rtr.dest_qpn = initiator.num();
    target.to_rtr(rtr);
    for (queue_pair* const half : {&initiator, &target}) half->to_rts(loopback::rts());
  }
  queue_pair initiator;
  queue_pair target;
};

/// Sends a message from the initiator to the queue. Returns the status of the request, which comes
/// with the receive's completion, if any.
ibv_wc_status send(loopback& l, halves& by, shared_receive_queue& to, std::size_t completions = 2) {
  ibv_sge into = raw::piece(l.mr.address(), 64, l.mr.lkey());
  ibv_recv_wr receive{};
  receive.wr_id = 77;
  receive.sg_list = &into;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  REQUIRE(to.post(&receive, &bad) == 0);
  raw::request message{IBV_WR_SEND, raw::piece(l.mr.address() + 4096, 64, l.mr.lkey())};
  message.wr.qp_type.xrc.remote_srqn = to.num();
  REQUIRE(raw::try_post(by.initiator, message) == 0);
  ibv_wc_status status = IBV_WC_GENERAL_ERR;
  for (const ibv_wc& wc : l.reap(completions)) {
    if (wc.wr_id == 77)
      CHECK(wc.qp_num == by.target.num());
    else
      status = wc.status;
  }
  return status;
}

}  // namespace

TEST_CASE("a target takes messages for a receive queue of its domain", "[verbs][device]") {
  loopback l;
  if (!l.ctx.limits().xrc) CORDMA_SKIP("rxe has no XRC");
  xrc_domain domain{l.ctx};
  shared_receive_queue queue{l.pd, domain, l.cq, {.wr_max = 4}};
  CHECK(queue.num() != 0);
  CHECK(shared_receive_queue{l.pd, {.wr_max = 4}}.num() == 0);
  halves pair{l, domain};
  CHECK(pair.initiator.type() == queue_pair_type::xrc_initiator);
  CHECK(pair.initiator.rd_atomic_max() == 1);
  CHECK(pair.initiator.capabilities().recv_wr_max == 0);
  CHECK(pair.target.type() == queue_pair_type::xrc_target);
  CHECK(pair.target.rd_atomic_max() == 0);
  CHECK(pair.target.capabilities().send_wr_max == 0);
  CHECK(pair.target.query_state() == queue_pair_state::rts);
  CHECK(send(l, pair, queue) == IBV_WC_SUCCESS);
}

TEST_CASE("a domain is shared by its file, and another file's is another domain",
          "[verbs][device]") {
  loopback l;
  if (!l.ctx.limits().xrc) CORDMA_SKIP("rxe has no XRC");
  const cordma::test::temporary_folder folder;
  const std::string path = folder.path / "domain";
  xrc_domain domain{l.ctx, path};
  struct stat made{};
  REQUIRE(::stat(path.c_str(), &made) == 0);
  CHECK((made.st_mode & 0777) == 0600);
  const cordma::unique_fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  xrc_domain same{l.ctx, file.get()};
  xrc_domain other{l.ctx, std::string{folder.path / "other"}};
  shared_receive_queue queue{l.pd, same, l.cq, {.wr_max = 4}};
  halves pair{l, domain};
  CHECK(send(l, pair, queue) == IBV_WC_SUCCESS);
  shared_receive_queue stranger{l.pd, other, l.cq, {.wr_max = 4}};
  CHECK(send(l, pair, stranger, 1) == IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("a domain's file that cannot be opened is named", "[verbs][device]") {
  context ctx{device_name()};
  if (!ctx.limits().xrc) CORDMA_SKIP("rxe has no XRC");
  const cordma::failure missing = failure_of([&] { xrc_domain{ctx, "/no/such/folder/domain"}; });
  CHECK(missing.code == std::error_code{ENOENT, std::system_category()});
  CHECK_THAT(missing.to_string(), Contains("/no/such/folder/domain"));
  CHECK(failure_of([&] { xrc_domain{ctx, -1}; }).code ==
        std::error_code{EBADF, std::system_category()});
}

TEST_CASE("what is no file of this user's own is no domain, and is named", "[verbs][device]") {
  context ctx{device_name()};
  if (!ctx.limits().xrc) CORDMA_SKIP("rxe has no XRC");
  const cordma::test::temporary_folder folder;
  const auto why = [&](const std::string& path) {
    const cordma::failure f = failure_of([&] { xrc_domain{ctx, path}; });
    CHECK_THAT(f.to_string(), Contains(path.c_str()));
    return f;
  };
  const auto of_errno = [](int number) { return std::error_code{number, std::system_category()}; };
  const std::string fifo = folder.path / "fifo", link = folder.path / "link",
                    good = folder.path / "good";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const cordma::failure of_fifo = why(fifo);
  CHECK(of_fifo.code == of_errno(EINVAL));
  CHECK_THAT(of_fifo.to_string(), Contains("no regular file: name another path"));
  CHECK_NOTHROW(xrc_domain{ctx, good});
  REQUIRE(::symlink(good.c_str(), link.c_str()) == 0);
  const cordma::failure of_link = why(link);
  CHECK(of_link.code == of_errno(ELOOP));
  CHECK_THAT(of_link.to_string(), Contains("name the file that it leads to"));
  const std::string cut = folder.path / "cut";
  const cordma::failure of_nul = why(cut + std::string{"\0domain", 7});
  CHECK(of_nul.code == of_errno(EINVAL));
  CHECK_THAT(of_nul.to_string(), Contains("leave it out"));
  CHECK(::access(cut.c_str(), F_OK) != 0);
  if (::geteuid() != 0) return;
  REQUIRE(::chown(good.c_str(), 1, 1) == 0);
  const cordma::failure of_other = why(good);
  CHECK(of_other.code == of_errno(EPERM));
  CHECK_THAT(of_other.to_string(), Contains("a file of this user, or of root"));
}

TEST_CASE("a device without XRC says so, and what to do", "[verbs]") {
  CHECK_NOTHROW(check_xrc("test", {.xrc = true}));
  const cordma::failure why = failure_of([] { check_xrc("ibv_open_xrcd", {}); });
  CHECK(why.code == make_error_code(cordma::errc::not_supported));
  CHECK_THAT(why.to_string(), Contains("IBV_DEVICE_XRC") && Contains("RC"));
}
