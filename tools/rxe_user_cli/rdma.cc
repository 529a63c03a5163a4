#include "tools/rxe_user_cli/rdma.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "rxe_user/devices/usable_devices.h"
#include "tools/rxe_user_cli/output.h"
#include "tools/rxe_user_cli/view.h"

namespace rxe_user_cli {
namespace {

using Json = nlohmann::ordered_json;
using Object = RdmaQuestion::Object;

constexpr char kHelp[] =
    R"(usage: rdma [-j] [-p] [-d] OBJECT [show] [DEV[/PORT]]

Answers queries of rdma(8) for the devices of rxe_user. OBJECT: dev, link,
statistic, resource [qp], system. -j: JSON; -p: indented; -d: details.
Devices are the interfaces that are up and have an address;
RXE_USER_DEVICES=NAME=INTERFACE,... selects and names them.
)";

// One result: a line of text, or an object of a JSON array.
struct Item {
  std::string lead;                  // the first words of the line
  Json identity = Json::object();    // in JSON, instead of `lead`
  Json attributes = Json::object();  // in both
};

Item OfDevice(const rxe_user::Device& device, size_t index) {
  return {std::to_string(index) + ": " + device.name + ":",
          {{"ifindex", index}, {"ifname", device.name}}};
}

// The port of a device: each device has one.
Item OfPort(const rxe_user::Device& device, size_t index) {
  return {"link " + device.name + "/1",
          {{"ifindex", index}, {"ifname", device.name}, {"port", 1}}};
}

Item Dev(const rxe_user::Device& device, size_t index) {
  Item item = OfDevice(device, index);
  item.attributes = {{"node_type", "ca"},
                     {"protocol", "roce"},
                     {"fw", "rxe_user"},
                     {"node_guid", view::GuidText(device.guid)},
                     {"sys_image_guid", view::GuidText(device.guid)}};
  return item;
}

Item Link(const rxe_user::Device& device, size_t index, bool netdev_index) {
  Item item = OfPort(device, index);
  item.attributes = {{"state", device.up ? "ACTIVE" : "DOWN"},
                     {"physical_state", device.up ? "LINK_UP" : "DISABLED"},
                     {"netdev", device.netdev}};
  if (netdev_index) item.attributes["netdev_index"] = device.ifindex;
  return item;
}

Item Resources(const rxe_user::Device& device, size_t index,
               const RdmaState& state) {
  uint64_t queue_pairs = 0;
  for (const StatProcess& process : state.processes) {
    for (const StatDevice& reported : process.devices) {
      if (IsOf(reported, device, state.devices)) {
        queue_pairs += reported.device.Number("queue_pair_count");
      }
    }
  }
  Item item = OfDevice(device, index);
  item.attributes = {{"qp", queue_pairs}};
  return item;
}

Item QueuePair(const rxe_user::Device& device, size_t index,
               const StatProcess& process,
               const rxe_user::ReportRecord& queue_pair) {
  Item item = OfPort(device, index);
  item.attributes = {{"lqpn", queue_pair.Number("qpn")}};
  for (const auto& [name, value] : queue_pair.attributes) {
    if (name == "peer_qpn") item.attributes["rqpn"] = queue_pair.Number(name);
  }
  item.attributes["type"] = queue_pair.Word("type");
  item.attributes["state"] = queue_pair.Word("state");
  item.attributes["sq-psn"] = queue_pair.Number("send_psn");
  item.attributes["path-mig-state"] = "MIGRATED";
  item.attributes["pid"] = process.pid;
  item.attributes["comm"] = process.command;
  return item;
}

std::vector<Item> QueuePairs(const rxe_user::Device& device, size_t index,
                             const RdmaState& state) {
  std::vector<Item> items;
  for (const StatProcess& process : state.processes) {
    for (const StatDevice& reported : process.devices) {
      if (!IsOf(reported, device, state.devices)) continue;
      for (const rxe_user::ReportRecord& queue_pair : reported.queue_pairs) {
        items.push_back(QueuePair(device, index, process, queue_pair));
      }
    }
  }
  return items;
}

Item Statistic(const rxe_user::Device& device, size_t index,
               const view::Counters& counters) {
  Item item = OfPort(device, index);
  item.identity.erase("ifindex");
  for (const auto& [name, value] : counters) item.attributes[name] = value;
  return item;
}

// `sums`: the counters, by device.
std::vector<Item> About(const rxe_user::Device& device, size_t index,
                        const RdmaQuestion& question, const RdmaState& state,
                        const std::map<std::string, view::Counters>& sums) {
  switch (question.object) {
    case Object::kDev:
      return {Dev(device, index)};
    case Object::kLink:
      return {Link(device, index, question.details || question.json)};
    case Object::kStatistic: {
      const auto counted = sums.find(device.name);
      return {Statistic(
          device, index,
          counted != sums.end() ? counted->second : view::NoCounters())};
    }
    case Object::kResource:
      return {Resources(device, index, state)};
    case Object::kQueuePairs:
      return QueuePairs(device, index, state);
    case Object::kSystem:
      break;
  }
  return {};
}

// Formats each attribute as "name value ", like rdma.
std::string AsText(const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) {
    text += item.lead + " ";
    for (const auto& [name, value] : item.attributes.items()) {
      text += name + " " +
              (value.is_string() ? value.get<std::string>() : value.dump()) +
              " ";
    }
    text += "\n";
  }
  return text;
}

std::string AsJson(const std::vector<Item>& items, bool pretty) {
  Json array = Json::array();
  for (const Item& item : items) {
    Json object = item.identity;
    object.update(item.attributes);
    array.push_back(std::move(object));
  }
  return array.dump(pretty ? 4 : -1, ' ', false,
                    Json::error_handler_t::replace) +
         "\n";
}

// Completes an abbreviated word to the first match, like rdma.
std::string_view Whole(std::string_view word,
                       std::initializer_list<std::string_view> words) {
  const auto* found = std::find_if(words.begin(), words.end(), [&](auto w) {
    return !word.empty() && w.starts_with(word);
  });
  return found != words.end() ? *found : std::string_view();
}

// Parses DEV or DEV/PORT. Returns false if it is neither.
bool ParseTarget(const std::string& target, RdmaQuestion* question) {
  const size_t slash = target.find('/');
  question->device = target.substr(0, slash);
  if (slash == std::string::npos) return !target.empty();
  const char* const end = target.data() + target.size();
  const auto parsed =
      std::from_chars(target.data() + slash + 1, end, question->port);
  return !question->device.empty() && parsed.ec == std::errc() &&
         parsed.ptr == end && question->port != 0;
}

// Also accepts several letters in one word. Returns false if it is unknown.
bool ParseOption(std::string_view option, RdmaQuestion* question) {
  if (option.starts_with("--")) {
    option = Whole(option, {"--json", "--pretty", "--details", "--raw"});
    if (option.empty()) return false;
    option.remove_prefix(2);
    option = option.substr(0, 1);
  } else {
    option.remove_prefix(1);
  }
  for (const char letter : option) {
    question->json |= letter == 'j';
    question->pretty |= letter == 'p';
    question->details |= letter == 'd';
  }
  return !option.empty() &&
         option.find_first_not_of("jpdr") == std::string_view::npos;
}

}  // namespace

bool ParseRdma(const std::vector<std::string>& arguments,
               RdmaQuestion* question, std::string* why) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("-")) {
      words.push_back(argument);
    } else if (!ParseOption(argument, question)) {
      *why = "unknown option " + argument;
      return false;
    }
  }
  auto next = words.begin();
  const auto is = [&](std::string_view word) {
    return next != words.end() && *next == word;
  };
  const std::string asked = next != words.end() ? *next++ : "dev";
  const std::string_view object =
      Whole(asked, {"dev", "link", "resource", "system", "statistic"});
  if (object.empty()) {
    *why = "unknown object " + asked +
           ": use dev, link, resource, statistic or system";
    return false;
  }
  if (object == "link") question->object = Object::kLink;
  if (object == "resource") question->object = Object::kResource;
  if (object == "statistic") question->object = Object::kStatistic;
  if (object == "system") question->object = Object::kSystem;

  if (next != words.end()) {
    const std::string_view command =
        Whole(*next, {"show", "list", "lst", "add", "delete", "set", "mode",
                      "bind", "unbind", "unset"});
    if (command == "show" || command.starts_with("l")) {
      ++next;
    } else if (!command.empty()) {
      *why = asked + " " + std::string(command) +
             ": devices are the interfaces that are up and have an address; "
             "RXE_USER_DEVICES=NAME=INTERFACE,... selects and names them";
      return false;
    }
  }
  if (question->object == Object::kResource && is("qp")) {
    question->object = Object::kQueuePairs;
    ++next;
  }
  if ((question->object == Object::kQueuePairs ||
       question->object == Object::kStatistic) &&
      is("link")) {
    ++next;
  }
  if (next != words.end() && !ParseTarget(*next++, question)) {
    *why = *std::prev(next) + " is not a device or DEVICE/PORT";
    return false;
  }
  if (next != words.end()) {
    *why = "unexpected argument " + *next;
    return false;
  }
  return true;
}

bool AnswerRdma(const RdmaQuestion& question, const RdmaState& state,
                std::string* answer) {
  std::vector<Item> items;
  bool found = question.device.empty();
  std::map<std::string, view::Counters> sums;
  if (question.object == Object::kStatistic) {
    sums = SumByDevice(state.devices, state.processes);
  }
  for (size_t i = 0; i < state.devices.size(); ++i) {
    const rxe_user::Device& device = *state.devices[i];
    if (!question.device.empty() && question.device != device.name) continue;
    if (question.port > 1) continue;
    found = true;
    for (Item& item : About(device, i, question, state, sums)) {
      items.push_back(std::move(item));
    }
  }
  if (question.object == Object::kSystem) {
    // A device belongs to the network namespace of its interface.
    items = {{"netns exclusive", {{"netns", "exclusive"}}}};
  }
  *answer = question.json ? AsJson(items, question.pretty) : AsText(items);
  return found;
}

int RunRdma(const std::vector<std::string>& arguments, std::FILE* out,
            std::FILE* err) {
  RdmaQuestion question;
  std::string text;
  const bool help =
      !arguments.empty() && (arguments[0] == "help" || arguments[0] == "-h" ||
                             arguments[0] == "--help");
  if (help) {
    text = kHelp;
  } else if (!arguments.empty() &&
             (arguments[0] == "-V" || arguments[0] == "--version")) {
    text = "rdma utility, rxe_user\n";
  } else {
    std::string why;
    if (!ParseRdma(arguments, &question, &why)) {
      std::fprintf(err, "rdma: %s\n", why.c_str());
      return 1;
    }
    RdmaState state;
    absl::StatusOr<rxe_user::Devices> devices = rxe_user::ListDevices();
    if (devices.ok()) devices = rxe_user::KeepUsable(*devices);
    if (!devices.ok()) {
      std::fprintf(err, "rdma: %s\n",
                   std::string(devices.status().message()).c_str());
      return 1;
    }
    state.devices = *std::move(devices);
    if (question.object == Object::kStatistic ||
        question.object == Object::kResource ||
        question.object == Object::kQueuePairs) {
      state.processes = AskAll(0).processes;
    }
    if (!AnswerRdma(question, state, &text)) {
      std::fprintf(err, "rdma: there is no %s; see rdma link\n",
                   question.device.c_str());
      return 1;
    }
  }
  return WriteText(text, out) ? 0 : OutputFailed("rdma", err);
}

}  // namespace rxe_user_cli
