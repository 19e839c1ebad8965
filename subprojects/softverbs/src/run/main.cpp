#include "run/check.hpp"
#include "run/libraries.hpp"
#include "run/program_file.hpp"
#include "run/settings.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

// softverbs-run: starts a program with softverbs' libraries preloaded.

namespace {

using namespace softverbs::run;

// Exit statuses. From 125 on they are env(1)'s, so that a caller can tell them from the program's.
constexpr int status_problem = 1;  // --check found a problem.
constexpr int status_usage = 125;
constexpr int status_cannot_run = 126;
constexpr int status_not_found = 127;

/// A mistake of the user, or something that is missing.
struct failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void print_help() {
  std::printf(
      "usage: softverbs-run [OPTIONS] PROGRAM [ARGUMENTS...]\n"
      "       softverbs-run [OPTIONS] --check [PROGRAM]\n\n"
      "Runs PROGRAM, unmodified, with the verbs device soft0 and with rdma_cm in user space. Real\n"
      "devices stay, ahead of soft0. Programs that PROGRAM starts are served, too.\n\n"
      "  --check                   says what would be served and what is in the way: status 1 if "
      "anything is\n");
  for (const setting& one : settings()) {
    std::string option = one.option;
    if (one.argument != nullptr) option.append(" ").append(one.argument);
    std::printf("  %-24s  %s (%s)\n", option.c_str(), one.help, one.variable);
  }
  std::printf(
      "  --help, --version\n\n"
      "Not served: programs that are linked statically (with libc, libibverbs or librdmacm), that\n"
      "gain rights when they start, that enter the kernel without libc, or that open libraries\n"
      "with RTLD_DEEPBIND.\n");
}

const setting* find_setting(std::string_view option) {
  for (const setting& one : settings())
    if (option == one.option) return &one;
  return nullptr;
}

struct command_line {
  bool is_check = false;
  bool is_done = false;  ///< --help or --version was all
  char** program = nullptr;
};

/// Reads the command line, and sets the variables that its options stand for.
command_line parse(char** arguments) {
  command_line parsed;
  for (; *arguments != nullptr && **arguments == '-'; ++arguments) {
    const std::string_view word = *arguments;
    if (word == "--") {
      ++arguments;
      break;
    }
    const std::size_t equals = word.find('=');
    const std::string option{word.substr(0, equals)};
    const setting* const found = find_setting(option);
    const bool takes_value = found != nullptr && found->argument != nullptr;
    if (equals != std::string_view::npos && !takes_value)
      throw failure{found != nullptr ? option + " takes no value"
                                     : "unknown option " + option + ": see --help"};
    if (found != nullptr) {
      const char* value = found->value;
      if (takes_value) value = equals != word.npos ? *arguments + equals + 1 : *++arguments;
      if (value == nullptr) throw failure{option + " needs a value: " + found->valid};
      if (found->is_valid != nullptr && !found->is_valid(value))
        throw failure{option + " " + value + ": must be " + found->valid};
      ::setenv(found->variable, value, 1);
    } else if (word == "--check") {
      parsed.is_check = true;
    } else if (word == "--help") {
      print_help();
      parsed.is_done = true;
      return parsed;
    } else if (word == "--version") {
      std::printf("softverbs-run %s\n", SOFTVERBS_VERSION);
      parsed.is_done = true;
      return parsed;
    } else {
      throw failure{"unknown option " + option + ": see --help"};
    }
  }
  parsed.program = arguments;
  return parsed;
}

/// Warns of an obstacle. Without the warning, the program would just not find soft0.
void warn_of_obstacle(const std::string& name) {
  const std::string path = find_program(name);
  const std::string obstacle = path.empty() ? "" : inspect(path).obstacle();
  if (!obstacle.empty())
    std::fprintf(stderr, "softverbs-run: softverbs does not serve %s: it %s\n", path.c_str(),
                 obstacle.c_str());
}

int run(char** arguments) {
  const command_line line = parse(arguments);
  if (line.is_done) return 0;
  const libraries found = find_libraries();
  const std::string name = *line.program != nullptr ? *line.program : "";
  if (line.is_check) return check(found, name) != 0 ? status_problem : 0;
  if (name.empty()) throw failure{"no program to run: see --help"};
  warn_of_obstacle(name);
  ::setenv("LD_PRELOAD", preload_value(found).c_str(), 1);
  ::execvp(*line.program, line.program);
  const int error = errno;
  std::fprintf(stderr, "softverbs-run: %s: %s\n", name.c_str(), std::strerror(error));
  return error == ENOENT ? status_not_found : status_cannot_run;
}

}  // namespace

int main(int, char** argv) {
  try {
    return run(argv + 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "softverbs-run: %s\n", error.what());
    return status_usage;
  }
}
