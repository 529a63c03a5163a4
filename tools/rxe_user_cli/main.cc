// rxe-user: the command-line program of the device.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rxe_user/faults/fault_settings.h"
#include "tools/rxe_user_cli/check.h"
#include "tools/rxe_user_cli/decode.h"
#include "tools/rxe_user_cli/devices.h"
#include "tools/rxe_user_cli/expectation_report.h"
#include "tools/rxe_user_cli/expecting_run.h"
#include "tools/rxe_user_cli/explain.h"
#include "tools/rxe_user_cli/faults.h"
#include "tools/rxe_user_cli/fired_rules.h"
#include "tools/rxe_user_cli/lesson.h"
#include "tools/rxe_user_cli/output.h"
#include "tools/rxe_user_cli/rdma.h"
#include "tools/rxe_user_cli/run.h"
#include "tools/rxe_user_cli/shrink.h"
#include "tools/rxe_user_cli/stat.h"
#include "tools/rxe_user_cli/trace.h"
#include "tools/rxe_user_cli/view.h"
#include "verbs_api/lint/lints.h"

namespace {

constexpr char kVersion[] = "rxe-user 0.1.0";
constexpr int kExitWrongUse = 2;

// `command` is empty for errors before the command.
int WrongUse(const std::string& what, const std::string& command = "") {
  std::fprintf(stderr, "rxe-user: %s (see rxe-user %s--help)\n", what.c_str(),
               command.empty() ? "" : (command + " ").c_str());
  return kExitWrongUse;
}

// The names of all commands.
std::string Commands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App*) { return true; })) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return names;
}

int PrintOut(const std::string& text) {
  return rxe_user_cli::WriteText(text, stdout) ? 0 : 1;
}

constexpr char kRunHelp[] =
    R"(usage: rxe-user run [--explain] [--capture FILE] [--trace FILE [--payload]]
                    [--check[=LINTS]] [--strict]
                    [--faults FILE|RULES|PROFILE [--faults-seed N]]
                    [--expect CONDITION]... [--expect-file FILE]...
                    [--tap[=FILE]] [--junit FILE]
                    [--sockets] [--mlx5] [--no-view] [--] COMMAND [ARGS...]

Runs an unmodified RDMA program on our device: puts our libraries first
in LD_LIBRARY_PATH and executes COMMAND in place of rxe-user, so exit
status, signals and terminal are those of COMMAND. Exit status 127: no
such command; 126: it cannot be executed; 125: rxe-user failed, for
instance because its libraries are missing.

COMMAND and its children see our devices, and no others, in
/sys/class/infiniband, /sys/class/infiniband_verbs and /dev/infiniband,
through a library in LD_PRELOAD; and in rdma(8), because ours is first in
PATH. --no-view: they see the system's devices instead.

--explain: explains on stderr the first error of each queue pair, and each
call that is refused. Silent when nothing goes wrong.

--capture FILE: writes their RoCEv2 packets to FILE, for rxe-user decode,
tcpdump -r and Wireshark. Each process has its own file: %p in FILE
becomes the process ID. Without %p the first process writes FILE and the
others FILE.PID.

--trace FILE: records to FILE, for rxe-user trace, rxe-user explain and
Wireshark: packets (their first 96 bytes; --payload: all), work requests,
completions, calls, states, timers, NAKs. Files as with --capture.

--check: checks how they use verbs, and writes a line on stderr for each
fault: a send queue that can never empty, a completion queue that is too
small, a timer of 655 ms, and so on. docs/lints.md lists the lints.
--check=-NAME turns a lint off, --check=NAME turns one on; commas join
several. --strict turns on lints that are slow, or change what COMMAND
sees. For CI: --expect 'lints == 0'.

--faults FILE, --faults 'RULES' or --faults PROFILE: drops, delays,
duplicates, reorders, corrupts or marks packets, answers with NAKs,
stalls the device, or lets calls and completions fail. A rule is
ACTION [rx|tx] [MATCH...] [WHEN...], one a line or separated by semicolons:
  drop tx op=data qp=@1 psn=+5 iter=1    delay 2ms~500us rx p=1%
  duplicate rx nth=3|7-9                 reorder 3 tx every=100
  corrupt payload tx nth=2               ce rx after=1s for=500ms maybe
  stall 20ms tx op=data nth=4            rnr 10ms rx nth=2
  fail ibv_reg_mr ENOMEM nth=2           complete RETRY_EXC_ERR tx nth=5
Profiles: lossy, wifi, incast, slow-peer, flaky-link. none: no rules yet;
rxe-user faults PID add adds some while COMMAND runs.
docs/faults-on-command.md lists all. --faults-seed N: another seed for p=
and ~ (default: 1). A rule that never fired is reported at the end of the
program, unless it says maybe; with --expect, --tap or --junit, the run fails.

--expect CONDITION: the run fails unless the condition is true when COMMAND
has ended: 'repeated == 0', 'wc(REM_ACCESS_ERR) == 1', 'send_wc(*) >= 1000 and
not wc(WR_FLUSH_ERR) > 0', 'every wc within 2s of post'. Counters have the
names of rxe-user stat. --expect-file FILE, or --expect @FILE: one condition a
line. A line on stderr names each condition that is not met. Exit status: that
of COMMAND (128 and the signal's number if it was killed); if it is 0 and a
condition is not met, 99. rxe-user is then the parent of COMMAND, and passes
signals on to it.

--tap[=FILE], --junit FILE: write the results in TAP (without FILE: to stderr)
and in JUnit's XML.

--sockets: their TCP sockets become rsockets (rsocket(7)), so programs
that do not use verbs run over RDMA. Use it at both ends. Ports up to
1024, and addresses that RDMA cannot reach, stay TCP.

--mlx5: every device looks like an mlx5 device, with DC and memory keys
(mlx5dv(7)). UCX then needs UCX_TLS=rc_v,ud_v,self or the like. For one
device: RXE_USER_DEVICES=mlx5_0=eth0/mlx5.
)";

// Whether the next argument is option `name`, with its file as NAME=FILE or as
// an argument of its own. `*argv` is then at the last of its arguments; `*file`
// is empty if there is no file.
bool IsFileOption(const char* name, char*** argv, std::string* file) {
  const size_t size = std::strlen(name);
  const char* const argument = (*argv)[0];
  if (std::strncmp(argument, name, size) != 0) return false;
  if (argument[size] == '=') {
    *file = argument + size + 1;
    return true;
  }
  if (argument[size] != '\0') return false;
  file->clear();
  if ((*argv)[1] != nullptr) *file = *++*argv;
  return true;
}

// Moves `*argv` behind the options of `command`. Returns the exit status if an
// option is left: --help, or one that does not exist.
std::optional<int> EndOptions(const std::string& command, const char* help,
                              char*** argv) {
  const std::string option = **argv != nullptr ? **argv : "";
  if (option == "--") ++*argv;
  if (option == "--" || !option.starts_with("-")) return std::nullopt;
  if (option == "-h" || option == "--help") return PrintOut(help);
  return WrongUse(command + ": unknown option " + option, command);
}

// The command line, quoted for a shell.
std::string CommandLine(char** argv) {
  std::vector<std::string> words;
  for (; *argv != nullptr; ++argv) words.emplace_back(*argv);
  return rxe_user_cli::QuoteForShell(words);
}

// Checks the rules of --faults, and stores their text in the options, so that
// programs need no file. Returns the exit status: 0 on success.
int ReadFaults(const std::string& value, rxe_user_cli::RunOptions* options) {
  std::vector<transport::faults::Rule> rules;
  uint64_t seed = 0;
  std::optional<std::string> wrong;
  if (value != rxe_user::kNoFaultRules) {
    wrong = rxe_user::LoadFaultRules(value, &rules);
  }
  if (!wrong && !options->faults_seed.empty()) {
    wrong = rxe_user::ParseFaultSeed(options->faults_seed, &seed);
  }
  if (wrong) {
    std::fprintf(stderr, "rxe-user run: --faults: %s\n", wrong->c_str());
    return kExitWrongUse;
  }
  if (rules.empty()) options->faults = rxe_user::kNoFaultRules;
  for (const transport::faults::Rule& rule : rules) {
    if (!options->faults.empty()) options->faults += "\n";
    options->faults += rule.text;
  }
  options->expect.rules = std::move(rules);
  return 0;
}

// Whether the next argument is --check. `*setting`: for RXE_USER_CHECK.
bool IsCheck(const char* argument, std::string* setting) {
  constexpr std::string_view kCheck = "--check";
  const std::string_view text = argument;
  if (!text.starts_with(kCheck)) return false;
  if (text.size() == kCheck.size()) {
    *setting = "1";
    return true;
  }
  if (text[kCheck.size()] != '=') return false;
  *setting = text.substr(kCheck.size() + 1);
  return true;
}

// Parsed by hand: the options of the command are not ours.
int RunCommand(char** argv) {
  using rxe_user_cli::AddExpectation;
  using rxe_user_cli::AddExpectationFile;
  rxe_user_cli::RunOptions options;
  options.expect.command = CommandLine(argv - 2);
  std::string value;
  std::string why;
  std::string faults;
  bool strict = false;
  for (; argv[0] != nullptr; ++argv) {
    if (std::strcmp(argv[0], "--no-view") == 0) {
      options.view = false;
    } else if (std::strcmp(argv[0], "--explain") == 0) {
      options.explain = true;
    } else if (IsCheck(argv[0], &options.check)) {
      verbs_api::lint::Settings settings;
      if (!verbs_api::lint::ParseSettings(options.check, &settings, &value)) {
        return WrongUse("run: --check: there is no lint " + value, "run");
      }
      if (settings.on.none()) {
        return WrongUse("run: --check= needs a list of lints", "run");
      }
    } else if (std::strcmp(argv[0], "--strict") == 0) {
      strict = true;
    } else if (std::strcmp(argv[0], "--sockets") == 0) {
      options.sockets = true;
    } else if (std::strcmp(argv[0], "--mlx5") == 0) {
      options.mlx5 = true;
    } else if (std::strcmp(argv[0], "--payload") == 0) {
      options.payload = true;
    } else if (IsFileOption("--capture", &argv, &options.capture)) {
      if (options.capture.empty())
        return WrongUse("run: --capture needs a file");
    } else if (IsFileOption("--trace", &argv, &options.trace)) {
      if (options.trace.empty()) return WrongUse("run: --trace needs a file");
    } else if (IsFileOption("--faults-seed", &argv, &options.faults_seed)) {
      if (options.faults_seed.empty()) {
        return WrongUse("run: --faults-seed needs a number");
      }
    } else if (IsFileOption("--faults", &argv, &faults)) {
      if (faults.empty()) {
        return WrongUse("run: --faults needs a file or rules");
      }
    } else if (IsFileOption("--expect", &argv, &value)) {
      if (value.empty()) return WrongUse("run: --expect needs a condition");
      const bool good =
          value[0] == '@'
              ? AddExpectationFile(value.substr(1), &options.expect, &why)
              : AddExpectation(value, &options.expect, &why);
      if (!good) return WrongUse("run: " + why, "run");
    } else if (IsFileOption("--expect-file", &argv, &value)) {
      if (!AddExpectationFile(value, &options.expect, &why)) {
        return WrongUse("run: " + why, "run");
      }
    } else if (std::strcmp(argv[0], "--tap") == 0) {
      options.expect.tap = true;
    } else if (IsFileOption("--tap", &argv, &options.expect.tap_file)) {
      if (options.expect.tap_file.empty()) {
        return WrongUse("run: --tap= needs a file");
      }
    } else if (IsFileOption("--junit", &argv, &options.expect.junit)) {
      if (options.expect.junit.empty()) {
        return WrongUse("run: --junit needs a file");
      }
    } else {
      break;
    }
  }
  if (options.payload && options.trace.empty()) {
    return WrongUse("run: --payload needs --trace");
  }
  if (strict) options.check += options.check.empty() ? "strict" : ",strict";
  if (options.check.empty()) {
    for (const auto& expectation : options.expect.expectations) {
      if (MentionsLints(expectation.condition)) {
        return WrongUse("run: --expect '" + expectation.text +
                        "' needs --check: without it there are no lints");
      }
    }
  }
  if (!options.faults_seed.empty() && faults.empty()) {
    return WrongUse("run: --faults-seed needs --faults");
  }
  if (const auto status = EndOptions("run", kRunHelp, &argv)) return *status;
  if (argv[0] == nullptr) return WrongUse("run: no command given", "run");
  if (!faults.empty()) {
    if (const int status = ReadFaults(faults, &options)) return status;
  }
  return rxe_user_cli::Run(argv, options);
}

constexpr char kShrinkHelp[] =
    R"(usage: rxe-user faults shrink --faults FILE|RULES|PROFILE
                              [--faults-seed N] [--runs N] [--seconds N]
                              [--] COMMAND [ARGS...]

Runs COMMAND repeatedly with fewer of the rules (delta debugging), and
prints a smallest set with which it still fails: it ends with the same
status or signal as with all rules, and not so without any one of the
printed ones. Rules with chances, and rules that hit several packets, are
replaced by one rule for each fault, by PSN and iteration, if COMMAND
fails with these, too.

COMMAND must fail each time with the same rules: a failure that depends
on timing cannot be found. COMMAND has no input, and its output is not
shown; stderr has a line for each run. For a failure that COMMAND does
not notice: ... -- rxe-user run --expect CONDITION -- COMMAND.

--runs N: the most runs of COMMAND (default: 200). --seconds N: kill a
run after N seconds (default: 60). That is an end of its own, unlike
every status and signal: it is the failure if the run with all rules
took that long; otherwise COMMAND has not failed in this run.
Exit status 0: rules are printed; 1: COMMAND does not fail, or ends in
the same way without rules, or stderr says what else; 2: wrong use;
128 plus the number of the signal that ended the search.
)";

// Parsed by hand: the options of the command are not ours.
int ShrinkCommand(char** argv) {
  rxe_user_cli::ShrinkOptions options;
  std::string faults;
  std::string number;
  const auto is_number = [&](const char* name, char*** at, int* value) {
    if (!IsFileOption(name, at, &number)) return false;
    char* end = nullptr;
    const long parsed = std::strtol(number.c_str(), &end, 10);
    *value = *end == '\0' && parsed > 0 && parsed <= 1'000'000
                 ? static_cast<int>(parsed)
                 : 0;
    return true;
  };
  for (; argv[0] != nullptr; ++argv) {
    if (IsFileOption("--faults-seed", &argv, &options.seed)) continue;
    if (IsFileOption("--faults", &argv, &faults)) continue;
    if (is_number("--runs", &argv, &options.runs)) continue;
    if (is_number("--seconds", &argv, &options.seconds)) continue;
    break;
  }
  if (const auto status = EndOptions("faults shrink", kShrinkHelp, &argv)) {
    return *status;
  }
  for (; argv[0] != nullptr; ++argv) options.command.emplace_back(*argv);
  if (options.runs == 0 || options.seconds == 0) {
    return WrongUse(
        "faults shrink: --runs and --seconds need a number from 1 on",
        "faults shrink");
  }
  if (faults.empty() || options.command.empty()) {
    return WrongUse("faults shrink: give --faults RULES and a command",
                    "faults shrink");
  }
  uint64_t seed = 0;
  auto wrong = rxe_user::LoadFaultRules(faults, &options.rules);
  if (!wrong && !options.seed.empty()) {
    wrong = rxe_user::ParseFaultSeed(options.seed, &seed);
  }
  if (wrong) {
    std::fprintf(stderr, "rxe-user faults: --faults: %s\n", wrong->c_str());
    return kExitWrongUse;
  }
  return rxe_user_cli::RunShrink(options, stdout, stderr);
}

// --- The commands that CLI11 parses. Each function adds one to `app`.

CLI::App* AddDecode(CLI::App& app, rxe_user_cli::DecodeOptions* options) {
  CLI::App* decode = app.add_subcommand(
      "decode", "Print the RoCEv2 packets of a capture (pcap, pcapng)");
  decode
      ->add_option("FILE", options->path,
                   "The capture file; - is standard input")
      ->required();
  decode->add_flag("--json", options->json, "Print JSON, one object per line");
  return decode;
}

CLI::App* AddTrace(CLI::App& app, rxe_user_cli::TraceOptions* options) {
  CLI::App* trace = app.add_subcommand(
      "trace", "Show captures and recordings of several ends on one time line");
  trace
      ->add_option("FILE", options->files,
                   "Capture or recording (pcap, pcapng) of each end; - is "
                   "standard input")
      ->required();
  CLI::Option* text = trace->add_flag("--text", options->text,
                                      "Print a line for each packet and event "
                                      "(the default)");
  trace->add_flag("--json", options->json, "Print JSON, one object per line")
      ->excludes(text);
  trace
      ->add_option("--html", options->html,
                   "Write the ladder to this file, for a browser")
      ->type_name("OUT");
  trace
      ->add_option("--svg", options->svg,
                   "Write the ladder as a picture to this file")
      ->type_name("OUT");
  trace
      ->add_option("--perfetto", options->perfetto,
                   "Write Chrome trace JSON to this file, for ui.perfetto.dev")
      ->type_name("OUT");
  trace
      ->add_option("--sqlog", options->sqlog,
                   "Write qlog records, a JSON text sequence, to this file")
      ->type_name("OUT");
  trace
      ->add_option("--local", options->locals,
                   "Own address of the host of a FILE that does not tell sent "
                   "from received packets; in the order of the files")
      ->type_name("ADDRESS")
      ->take_all()
      ->allow_extra_args(false);
  trace
      ->add_option("--limit", options->limit,
                   "Maximum number of packets in a ladder (default: 20000)")
      ->type_name("N");
  return trace;
}

CLI::App* AddCheck(CLI::App& app, rxe_user_cli::CheckOptions* options) {
  CLI::App* check = app.add_subcommand(
      "check", "Check captures and recordings against the rules of RoCEv2");
  check
      ->add_option("FILE", options->files,
                   "Capture or recording (pcap, pcapng) of any device; - is "
                   "standard input")
      ->required();
  check->add_flag("--json", options->json, "Print JSON, one object per line");
  check
      ->add_option("--local", options->locals,
                   "Address whose packets were captured where they were sent, "
                   "for a FILE that does not tell sent from received packets")
      ->type_name("ADDRESS")
      ->take_all()
      ->allow_extra_args(false);
  check
      ->add_option("--retry-cnt", options->retry_count,
                   "retry_cnt of the queue pairs, for a FILE that does not "
                   "contain it")
      ->type_name("N")
      ->check(CLI::Range(0, 7));
  check
      ->add_option("--timeout", options->timeout,
                   "Their ACK timeout, as in ibv_modify_qp(3): 4.096 us x 2^N")
      ->type_name("N")
      ->check(CLI::Range(0, 31));
  check
      ->add_option("--cnp-interval", options->cnp_interval_us,
                   "Minimum time between two CNPs to a queue pair, in us "
                   "(default: 4)")
      ->type_name("US")
      ->check(CLI::Range(0.0, 1e6));
  check
      ->add_option("--without", options->without,
                   "Rule or lint whose findings are left out, by name "
                   "(repeatable)")
      ->type_name("NAME")
      ->take_all()
      ->allow_extra_args(false)
      ->check(CLI::IsMember(rxe_user_cli::CheckNames()));
  check->add_flag("--latencies", options->latencies,
                  "Print how long answers, NAKs and repeats took");
  check->footer(
      "Exit status: 0 without findings, 1 with, 2 if a file cannot be read.\n"
      "docs/check.md lists the rules, docs/lints.md the lints of two ends.");
  return check;
}

CLI::App* AddExplain(CLI::App& app, std::vector<std::string>* words) {
  CLI::App* explain = app.add_subcommand(
      "explain",
      "Explain a status, or what happened to the queue pairs of a process or "
      "recording");
  explain
      ->add_option("WORDS", *words,
                   "status NUMBER [vendor_err NUMBER], or PID [QPN], or\n"
                   "FILE...")
      ->required();
  explain->footer(
      "explain status 12 vendor_err 129: what the numbers of a completion "
      "mean,\n"
      "also those of mlx5.\n"
      "explain PID [QPN]: the first cause of each failure, what is "
      "outstanding\n"
      "and what it waits for.\n"
      "explain FILE...: the same from recordings (run --trace) of one or more "
      "ends;\n"
      "nothing if nothing went wrong.");
  return explain;
}

CLI::App* AddLesson(CLI::App& app, rxe_user_cli::LessonOptions* options) {
  CLI::App* lesson = app.add_subcommand(
      "lesson", "Run a lesson about RDMA on loopback and draw what happened");
  lesson
      ->add_option("NUMBER", options->number,
                   "The lesson; without it, they are listed")
      ->check(CLI::Range(1, 99));
  lesson
      ->add_option("--folder", options->folder,
                   "For program, recording and page (default: a new folder in "
                   "TMPDIR)")
      ->type_name("FOLDER");
  lesson->footer(
      "Compiles the lesson's program with cc. Exit status: that of the "
      "program,\n0 if it saw what the lesson is about.");
  return lesson;
}

CLI::App* AddView(CLI::App& app, rxe_user_cli::ViewOptions* options) {
  CLI::App* view = app.add_subcommand(
      "view",
      "Write the files that programs under run see in /sys and /dev, and "
      "print their folder");
  view->add_option("--for", options->user,
                   "The process that uses the folder (default: the parent); "
                   "the folder may be removed when it has ended")
      ->type_name("PID")
      ->check(CLI::Range(1, std::numeric_limits<pid_t>::max()));
  view->add_flag("--leave", options->leave,
                 "The process does not use the folder any more; the last "
                 "process removes it");
  // Options of the preload library.
  view->add_flag("--lazy", options->lazy)->group("");
  view->add_flag("--counters", options->counters)->group("");
  view->add_flag("--known-devices", options->known_devices)->group("");
  return view;
}

}  // namespace

int main(int argc, char** argv) {
  // `help` means --help, and `help COMMAND` means COMMAND --help.
  char help[] = "--help";
  if (argc > 1 && std::strcmp(argv[1], "help") == 0) {
    argc = argc > 2 ? 3 : 2;
    if (argc == 3) argv[1] = argv[2];
    argv[argc - 1] = help;
    argv[argc] = nullptr;
  }
  if (argc > 1 && std::strcmp(argv[1], "run") == 0) return RunCommand(argv + 2);
  if (argc > 2 && std::strcmp(argv[1], "faults") == 0 &&
      std::strcmp(argv[2], "shrink") == 0) {
    return ShrinkCommand(argv + 3);
  }
  // The arguments of `rdma` are those of rdma(8), in the same order.
  if (argc > 1 && std::strcmp(argv[1], "rdma") == 0) {
    return rxe_user_cli::RunRdma({argv + 2, argv + argc}, stdout, stderr);
  }

  CLI::App app("An RDMA NIC in a shared library: tools.", "rxe-user");
  app.set_version_flag("--version", kVersion);
  app.require_subcommand(0, 1);
  app.footer("See rxe-user COMMAND --help.");

  app.add_subcommand("run", "Run an RDMA program on our device");

  app.add_subcommand("rdma", "Answer queries of rdma(8) for our devices");

  bool devices_json = false;
  CLI::App* devices = app.add_subcommand(
      "devices", "List devices with their state, MTU, GUID and GIDs");
  devices->add_flag("--json", devices_json, "Print JSON");
  devices->footer("Exit status 1: there is no device.");

  rxe_user_cli::DecodeOptions decode_options;
  CLI::App* decode = AddDecode(app, &decode_options);
  rxe_user_cli::TraceOptions trace_options;
  CLI::App* trace = AddTrace(app, &trace_options);
  rxe_user_cli::CheckOptions check_options;
  CLI::App* check = AddCheck(app, &check_options);

  bool stat_all = false;  // the default without a process
  rxe_user_cli::StatOptions stat_options;
  CLI::App* stat = app.add_subcommand(
      "stat", "Show devices, queue pairs and counters of running programs");
  CLI::Option* stat_pid =
      stat->add_option("PID", stat_options.pid, "Only this process")
          ->check(CLI::Range(1, std::numeric_limits<pid_t>::max()));
  stat->add_flag("--all", stat_all,
                 "All your processes, or all processes for root; "
                 "the default without PID")
      ->excludes(stat_pid);
  stat->add_flag("--json", stat_options.json, "Print JSON");
  CLI::Option* stat_watch =
      stat->add_option("--watch", stat_options.watch,
                       "Show changes at this interval (default: 1 second)")
          ->expected(0, 1)
          ->type_name("[SECONDS]")
          ->check(CLI::Range(0.01, 86400.0));

  std::vector<std::string> explain_words;
  CLI::App* explain = AddExplain(app, &explain_words);

  std::string faults_file;
  CLI::App* faults = app.add_subcommand(
      "faults",
      "Change the rules of run --faults while the program runs, print the "
      "faults of a recording as rules, or shrink a set of rules");
  CLI::App* faults_of = faults->add_subcommand(
      "of", "Print the faults of a recording as rules that repeat them");
  faults_of
      ->add_option("FILE", faults_file,
                   "Recording (run --faults RULES --trace FILE)")
      ->required();
  faults->add_subcommand(
      "shrink",
      "Find a smallest set of rules with which a program still fails");
  std::vector<std::string> faults_words;
  faults->add_option("WORDS", faults_words,
                     "PID, then list, add RULES, remove NUMBER... or clear");
  bool faults_json = false;
  faults->add_flag("--json", faults_json, "Print JSON");
  faults->footer(
      "PID list: the rules of the process, and how often they have fired.\n"
      "PID add FILE|RULES|PROFILE: adds rules after the present ones.\n"
      "PID remove NUMBER...: removes rules; PID clear: all of them.\n"
      "The process must be this user's, and started with run --faults;\n"
      "--faults none starts it without rules.");

  rxe_user_cli::LessonOptions lesson_options;
  CLI::App* lesson = AddLesson(app, &lesson_options);
  rxe_user_cli::ViewOptions view_options;
  CLI::App* view = AddView(app, &view_options);

  const std::string first = argc > 1 ? argv[1] : "";
  const bool is_command = !app.get_subcommands([&](const CLI::App* command) {
                                return command->get_name() == first;
                              })
                               .empty();
  if (!first.empty() && first[0] != '-' && !is_command) {
    return WrongUse("no command " + first + "; there are " + Commands(app));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return PrintOut(app.help());
  } catch (const CLI::CallForVersion&) {
    return PrintOut(std::string(kVersion) + "\n");
  } catch (const CLI::ParseError& e) {
    return WrongUse(e.what(), is_command ? first : "");
  }
  if (devices->parsed()) {
    return rxe_user_cli::RunDevices(devices_json, stdout, stderr);
  }
  if (decode->parsed()) {
    return rxe_user_cli::RunDecode(decode_options, stdout, stderr);
  }
  if (trace->parsed()) {
    return rxe_user_cli::RunTrace(trace_options, stdout, stderr);
  }
  if (check->parsed()) {
    return rxe_user_cli::RunCheck(check_options, stdout, stderr);
  }
  if (stat->parsed()) {
    // An option without a number has the value 0.
    if (stat_watch->count() != 0 && stat_options.watch == 0) {
      stat_options.watch = 1;
    }
    return rxe_user_cli::RunStat(stat_options, stdout, stderr);
  }
  if (explain->parsed()) {
    rxe_user_cli::ExplainOptions explain_options;
    std::string why;
    if (!rxe_user_cli::ParseExplain(explain_words, &explain_options, &why)) {
      return WrongUse("explain: " + why, "explain");
    }
    return rxe_user_cli::RunExplain(explain_options, stdout, stderr);
  }
  if (faults->parsed()) {
    if (faults_of->parsed()) {
      return rxe_user_cli::RunFaultsOf(faults_file, stdout, stderr);
    }
    rxe_user_cli::FaultsOptions faults_options;
    faults_options.json = faults_json;
    std::string why;
    if (!rxe_user_cli::ParseFaults(faults_words, &faults_options, &why)) {
      return WrongUse("faults: " + why, "faults");
    }
    return rxe_user_cli::RunFaults(faults_options, stdout, stderr);
  }
  if (lesson->parsed()) {
    return rxe_user_cli::RunLesson(lesson_options, stdout, stderr);
  }
  if (view->parsed()) {
    return rxe_user_cli::RunView(view_options, stdout, stderr);
  }
  return PrintOut(app.help());
}
