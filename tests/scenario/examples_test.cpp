// Every example and the demo run as a user would run them, and print what they should.

#include "scenario/folders.hpp"
#include "support/commands.hpp"
#include "support/temporary_folder.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

using cordma::test::outcome;
using cordma::test::run;
using cordma::test::run_on_terminal;
using cordma::test::temporary_folder;

namespace {

outcome run_example(const std::string& name) {
  return run(CORDMA_BUILD_FOLDER "/examples/" + name);
}

std::string device() { return std::getenv("CORDMA_TEST_DEVICE"); }

/// A server and its clients, which get these arguments too.
std::string processes(const std::string& name, int clients, const std::string& arguments = "") {
  return CORDMA_SOURCE_FOLDER "/examples/processes " CORDMA_BUILD_FOLDER "/examples/" + name + " " +
         device() + " " + std::to_string(clients) + " " + arguments;
}
outcome run_processes(const std::string& name, int clients, const std::string& arguments = "") {
  return run(processes(name, clients, arguments));
}

/// Example 10: files in `from` go `to` another folder.
struct file_transfer {
  file_transfer() {
    std::ofstream file{from.path / "data"};
    for (int i = 0; i < 1'000'000; ++i) file << i;  // Pieces, and a part of one.
  }
  [[nodiscard]] std::string command(const std::string& file, const std::string& name = "") const {
    return "cd " + to.path.string() + " && " +
           processes("10_file_transfer", 1, (from.path / file).string() + " " + name);
  }
  [[nodiscard]] bool has_arrived(const std::string& name) const {
    return contents_of(to.path / name) == contents_of(from.path / "data");
  }
  [[nodiscard]] std::ptrdiff_t files_arrived() const {
    return std::distance(std::filesystem::directory_iterator{to.path}, {});
  }
  static std::string contents_of(const std::filesystem::path& path) {
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
  temporary_folder from, to;
};

}  // namespace

TEST_CASE("example 01 awaits tasks side by side and reports a failure", "[scenario]") {
  const outcome ran = run_example("01_task");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("side by side: 4 and 9"));
  CHECK_THAT(ran.output, Catch::Contains("it failed: fail_politely: refused"));
  CHECK_THAT(ran.output, Catch::Contains("worker 3"));
}

TEST_CASE("example 02 sleeps, times out and stops", "[scenario]") {
  const outcome ran = run_example("02_timer_and_stop");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("sleeper 1 was first"));
  CHECK_THAT(ran.output, Catch::Contains("deadline passed"));
  CHECK_THAT(ran.output, Catch::Contains("ticked, and was stopped"));
}

TEST_CASE("example 03 without a device of that name says which there are", "[scenario]") {
  const outcome ran = run_example("03_device_info no_such_device");
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Catch::Contains("no such RDMA device"));
}

TEST_CASE("example 03 shows the device, its limits and its GIDs", "[scenario][device]") {
  const outcome ran = run_example("03_device_info " + device());
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("found " + device()));
  CHECK_THAT(ran.output, Catch::Contains("queue pairs"));
  CHECK_THAT(ran.output, Catch::Contains("chosen: GID"));
}

TEST_CASE("example 16 logs who connects, is refused and borrows", "[scenario][device]") {
  const outcome ran = run_example("16_logging " + device());
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("<6>") && Catch::Contains(" info listening local=127."));
  CHECK_THAT(ran.output, Catch::Contains(" warning client_refused peer=127.0.0.1:") &&
                             Catch::Contains("wrong word"));
  CHECK_THAT(ran.output, Catch::Contains("\nconnected: 2\n") && Catch::Contains("\nclosed: 2\n") &&
                             Catch::Contains("\nconnect_failed: 1\n") &&
                             Catch::Contains("\nlease_opened: 1\nlease_returned: 1\n"));
}

TEST_CASE("example 04 exchanges messages, with and without an immediate", "[scenario][device]") {
  const outcome ran = run_example("04_send_recv " + device());
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("server got 'hello'\n"));
  CHECK_THAT(ran.output, Catch::Contains("server got 'hello again' with immediate 42"));
  CHECK_THAT(ran.output, Catch::Contains("client got 'goodbye'"));
}

TEST_CASE("example 05 writes, reads and counts in the peer's memory", "[scenario][device]") {
  const outcome ran = run_example("05_read_write_atomics " + device());
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("read back what it wrote: yes"));
  CHECK_THAT(ran.output, Catch::Contains("counter was 0, then 7, and is 100"));
  CHECK_THAT(ran.output, Catch::Contains("a batch wrote 8, read 8 and found 100"));
  CHECK_THAT(ran.output, Catch::Contains("server: immediate 2026, memory starts with 0xc0"));
}

TEST_CASE("example 06 asks its peer for memory and hands it over", "[scenario][device]") {
  const outcome ran = run_processes("06_remote_memory", 1);
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("client: has 16 bytes of the server's for 2"));
  CHECK_THAT(ran.output, Catch::Contains("client: handed it over"));
  CHECK_THAT(ran.output, Catch::Contains("server: was given 16 bytes, the first word is 42"));
}

TEST_CASE("example 07 counts exactly, by a spin lock and by fetch_add", "[scenario][device]") {
  const outcome ran = run_processes("07_shared_counter", 3);
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("client 3: added 1000 to each"));
  CHECK_THAT(ran.output, Catch::Contains("owner: 3000 under the lock, 3000 by fetch_add"));
}

TEST_CASE("example 08 echoes, and counts each call in its histogram", "[scenario][device]") {
  const outcome ran = run_processes("08_rpc_echo", 1, "3000 7");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("client: 3000 calls, 7 at a time: "));
  CHECK_THAT(ran.output, Catch::Contains("p50") && Catch::Contains("p90") &&
                             Catch::Contains("p99 ") && Catch::Contains("p99.9 "));
  CHECK_THAT(ran.output, Catch::Contains("server: answered 4000 calls"));
  const std::regex bucket{"[0-9.]+ us +([0-9]+) #*\n"};
  int counted = 0;
  const std::sregex_iterator none;
  for (std::sregex_iterator at{ran.output.begin(), ran.output.end(), bucket}; at != none; ++at) {
    counted += std::stoi((*at)[1]);
  }
  CHECK(counted == 3000);
}

TEST_CASE("example 08 takes no calls but as many as it says", "[scenario]") {
  for (const char* calls : {"0", "many", "3x", "-1", "10000001", "99999999999", "1 0", "1 1025"}) {
    const outcome ran = run_example(std::string{"08_rpc_echo client 127.0.0.1:1 '' "} + calls);
    INFO(calls << ": " << ran.output);
    CHECK(ran.exit_status == 2);
    CHECK_THAT(ran.output, Catch::Contains("usage: "));
  }
}

TEST_CASE("example 09 puts by calls and gets by READs, side by side", "[scenario][device]") {
  const outcome ran = run_processes("09_key_value", 2);
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("client: greeting is 'hello', farewell is not there"));
  CHECK_THAT(ran.output,
             Catch::Contains("client: 2000 gets beside ") && Catch::Contains(" puts: all whole; "));
  CHECK_THAT(ran.output, Catch::Contains("server: answered "));
}

TEST_CASE("example 17 writes spans that link up, as OpenTelemetry reads them",
          "[scenario][device]") {
  const temporary_folder folder;
  const std::string file = (folder.path / "spans.jsonl").string();
  const outcome ran = run(CORDMA_SOURCE_FOLDER "/examples/processes --both " + file +
                          " " CORDMA_BUILD_FOLDER "/examples/17_tracing " + device());
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("client: 3 pieces cost 75\n"));
  CHECK_THAT(ran.output, Catch::Contains("handler failed: there is no such item\n"));
  const outcome checked =
      run("python3 " CORDMA_SOURCE_FOLDER "/tests/scenario/otlp_spans.py " + file);
  INFO(checked.output);
  CHECK(checked.exit_status == 0);
  CHECK(checked.output == "9 spans link up\n");
}

TEST_CASE("example 17 needs a file to write to", "[scenario][device]") {
  const outcome ran = run_example("17_tracing server " + device() + " /no/such/folder/spans");
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Catch::Contains("open: No such file or directory: /no/such/folder/spans"));
}

TEST_CASE("example 10 sends a file, with a name of its own or another", "[scenario][device]") {
  const file_transfer transfer;
  const std::string name = GENERATE("", "other");
  const outcome ran = run(transfer.command("data", name));
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK(transfer.has_arrived(name.empty() ? "data" : name));
  CHECK(transfer.files_arrived() == 1);
  CHECK_THAT(ran.output, Catch::Contains("client: sent 5888890 bytes as ") &&
                             Catch::Contains("; both sides' checksum: ") && !Catch::Contains(" %"));
}

TEST_CASE("example 10 shows how far it is, on a terminal", "[scenario][device]") {
  const file_transfer transfer;
  const outcome ran = run_on_terminal(transfer.command("data"));
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK(transfer.has_arrived("data"));
  CHECK_THAT(ran.output, Catch::Contains("\r[###") && Catch::Contains("#] 100 %"));
}

TEST_CASE("example 10 sends an empty file", "[scenario][device]") {
  const file_transfer transfer;
  const std::ofstream empty{transfer.from.path / "empty"};
  const outcome ran = run(transfer.command("empty"));
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK(std::filesystem::file_size(transfer.to.path / "empty") == 0);
}

TEST_CASE("example 10 sends nothing that is not there, or no file", "[scenario][device]") {
  const file_transfer transfer;
  const outcome missing = run(transfer.command("missing"));
  CHECK(missing.exit_status == 1);
  CHECK_THAT(missing.output, Catch::Contains("missing: No such file or directory"));
  const outcome folder = run(transfer.command("."));
  CHECK(folder.exit_status == 1);
  CHECK_THAT(folder.output, Catch::Contains("not a regular file"));
  CHECK(transfer.files_arrived() == 0);
}

TEST_CASE("example 10's server lets no file out of its folder", "[scenario][device]") {
  const file_transfer transfer;
  const std::string name = GENERATE("../evil", "/tmp/evil", ".hidden", "..");
  const outcome ran = run(transfer.command("data", name));
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Catch::Contains("not a name for a file"));
  CHECK(transfer.files_arrived() == 0);
  CHECK_FALSE(std::filesystem::is_regular_file(transfer.to.path / name));
}

TEST_CASE("example 11 finds the members of a group", "[scenario][device]") {
  const outcome ran = run_example("11_datagrams " + device());
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  for (const char* name : {"anna", "bert", "carla"})
    CHECK_THAT(ran.output, Catch::Contains(std::string{name} + " is at qpn="));
  CHECK_THAT(ran.output, Catch::Contains("anna got 'nice to meet you, anna'"));
}

#if CORDMA_HAS_ASIO
TEST_CASE("example 12 answers TCP clients by calls, on one thread with asio",
          "[scenario][device]") {
  const outcome ran = run_example("12_asio_front '" + device() + "' one two one");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK(ran.output == "one 1\ntwo 1\none 2\n");
}
#endif

TEST_CASE("the demo's two processes move data and print what happened", "[scenario][device]") {
  const outcome ran = run(CORDMA_SOURCE_FOLDER "/examples/demo " CORDMA_BUILD_FOLDER);
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("device " + device()));
  CHECK_THAT(ran.output, Catch::Contains("[server] received 'hello from the client'"));
  CHECK_THAT(ran.output, Catch::Contains("read back 'written by RDMA'"));
  CHECK_THAT(ran.output, Catch::Contains("before 0, after 42"));
  CHECK_THAT(ran.output, Catch::Contains("1000 writes of 8 bytes: p50"));
  CHECK_THAT(ran.output, Catch::Contains("bytes in use"));
  CHECK_THAT(ran.output, Catch::Contains("of its memory back, with 'handed over'"));
  CHECK_THAT(ran.output, Catch::Contains("is back (expired), and holds 'in time'"));
  CHECK_THAT(ran.output, Catch::Contains("refused by its own side: post_send"));
  CHECK_THAT(ran.output, Catch::Contains("refused by the server's device, "));
  CHECK_THAT(ran.output, Catch::Contains("the first connection goes on: the counter is 42"));
  CHECK_THAT(ran.output, Catch::Contains("its memory holds 'written by RDMA'"));
  CHECK_THAT(ran.output, Catch::Contains("20000 calls, 1 at a time: "));
  CHECK_THAT(ran.output, Catch::EndsWith("server: answered 21000 calls\n"));
}

TEST_CASE("the demo's two processes connect in each way", "[scenario][device]") {
  struct shown {
    const char* method;
    const char* words;
  };
  for (const shown& each :
       {shown{"unix", "has proved to be 'uid "}, shown{"rdma_cm", "connected by rdma_cm to "},
        shown{"raw", "connected by the client's text, to queue pair 0x"},
        shown{"psk", "has proved to be 'demo'"},
        shown{"certificate", "has proved to be 'client.demo'"}}) {
    const outcome ran = run(CORDMA_SOURCE_FOLDER "/examples/demo " CORDMA_BUILD_FOLDER " " +
                            device() + " " + each.method);
    INFO(each.method << ": " << ran.output);
    CHECK(ran.exit_status == 0);
    CHECK_THAT(ran.output, Catch::Contains(each.words));
    CHECK_THAT(ran.output, Catch::Contains("the first connection goes on: the counter is 42"));
    CHECK_THAT(ran.output, Catch::EndsWith("its memory holds 'written by RDMA', which it never "
                                           "received\n"));
  }
}

TEST_CASE("the demo names the ways to connect when it is asked for another", "[scenario][device]") {
  const outcome ran = run_example("cordma-demo server " + device() + " pigeon .");
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK(ran.output ==
        "no way 'pigeon' to connect; there is: tcp, unix, rdma_cm, raw, psk, certificate\n");
}

TEST_CASE("the demo's client says when no server is there", "[scenario][device]") {
  // Port 1 is privileged, and nothing listens there.
  const outcome ran = run_example("cordma-demo client 127.0.0.1:1");
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Catch::Contains("127.0.0.1:1") && Catch::Contains("refused"));
}
