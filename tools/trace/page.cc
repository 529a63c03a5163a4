#include "tools/trace/page.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tools/trace/escape.h"
#include "tools/trace/text_view.h"
#include "tools/trace/time_text.h"

namespace trace {
namespace {

using Json = nlohmann::ordered_json;

// Without padding, which browsers do not need.
std::string Base64(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  uint32_t bits = 0;
  int count = 0;
  for (const uint8_t byte : bytes) {
    bits = bits << 8 | byte;
    for (count += 8; count >= 6; count -= 6) {
      text += kDigits[bits >> (count - 6) & 63];
    }
  }
  if (count > 0) text += kDigits[bits << (6 - count) & 63];
  return text;
}

// ns since the first packet or event; null: unknown.
Json Since(const Timeline& t, int64_t time) {
  return time == kNoTime ? Json() : Json(time - t.first);
}

Json NumberOrNull(uint64_t number) {
  return number == 0 ? Json() : Json(number);
}

// A row without its trailing nulls.
Json Row(Json row) {
  while (!row.empty() && row.back().is_null()) row.erase(row.size() - 1);
  return row;
}

// The data for the script, which names the members of the rows.
Json Data(const Timeline& t, const Conversation& c, const Ladder& ladder) {
  Json packets = Json::array();
  Json opcodes = Json::object();
  for (const size_t i : ladder.packets) {
    const Arrow& arrow = t.arrows[i];
    const Packet& p = arrow.packet();
    opcodes[std::to_string(p.opcode)] = p.info().name;
    const auto head = t.recording_of(arrow).HeadOf(p);
    const bool waited =
        arrow.received != nullptr && arrow.received->waited() != 0;
    const bool has_event = p.event != 0 || waited;
    packets.push_back(
        Row({i,
             Base64(head.first(
                 std::min<size_t>(head.size(), p.info().header_length))),
             arrow.start() - t.first,
             arrow.t0 == kNoTime   ? Json(-1)
             : arrow.t1 == kNoTime ? Json()
                                   : Json(arrow.t1 - arrow.t0),
             arrow.sent != nullptr ? Json(arrow.sent->frame) : Json(),
             arrow.received != nullptr ? Json(arrow.received->frame) : Json(),
             NumberOrNull(arrow.message),
             arrow.answers == kNone ? Json() : Json(arrow.answers),
             has_event ? Json(arrow.sent != nullptr ? arrow.sent_file
                                                    : arrow.received_file)
                       : Json(),
             NumberOrNull(p.event), NumberOrNull(p.cause),
             waited ? Json(arrow.received->waited()) : Json()}));
  }
  Json events = Json::array();
  for (const size_t e : ladder.events) {
    const TimedEvent& timed = t.events[e];
    Json fields = Json::array();
    for (const Event::Value& value : timed.event->Values()) {
      fields.push_back({value.field->name, Printable(value.text)});
    }
    const auto& header = timed.event->header();
    events.push_back({e, timed.file, header.id, header.cause,
                      Since(t, timed.time), header.qpn, fields});
  }
  Json messages = Json::array();
  for (const size_t m : ladder.messages) {
    const Message& message = c.messages[m];
    messages.push_back(
        Row({m, message.number, t.ends[message.end].name, message.name,
             message.first_psn, message.last_psn, message.bytes,
             Since(t, message.begin), Since(t, message.done),
             Since(t, message.polled),
             message.error.empty() ? Json() : Json(message.error),
             message.has_wr_id ? Json(absl::StrFormat("0x%x", message.wr_id))
                               : Json()}));
  }
  return {{"opcodes", opcodes},
          {"packets", packets},
          {"events", events},
          {"messages", messages}};
}

// JSON that is safe inside an HTML element: ASCII without "<".
std::string ForScript(const Json& json) {
  return absl::StrReplaceAll(
      json.dump(-1, ' ', true, Json::error_handler_t::replace),
      {{"<", "\\u003c"}});
}

std::string Notes(const Timeline& t, const Ladder& ladder) {
  std::vector<std::string> notes = t.notes;
  for (const Recording* recording : t.recordings) {
    if (!recording->error.empty()) {
      notes.push_back(recording->path + ": " + recording->error);
    }
  }
  if (ladder.missing != 0) {
    notes.push_back("The picture has the first " +
                    std::to_string(ladder.arrows) + " packets; " +
                    std::to_string(ladder.missing) +
                    " more are in the files (--limit)");
  }
  std::string text;
  for (const std::string& note : notes) {
    text += "<li>" + EscapeXml(note) + "</li>";
  }
  return text.empty() ? "" : "<ul class=\"notes\">" + text + "</ul>\n";
}

std::string Title(const Timeline& t) {
  std::string title;
  for (const Recording* recording : t.recordings) {
    const size_t slash = recording->path.rfind('/');
    title += (title.empty() ? "" : ", ") +
             recording->path.substr(slash == std::string::npos ? 0 : slash + 1);
  }
  return title;
}

std::string Filters(const Timeline& t, const Conversation& c) {
  struct Filter {
    const char* name;
    const char* text;
  };
  constexpr Filter kFilters[] = {
      {"k", "ACK"},   {"n", "NAK, RNR NAK"}, {"d", "READ responses"},
      {"c", "CNP"},   {"y", "CM"},           {"i", "MIDDLE packets"},
      {"v", "events"}};
  std::string text = "<div class=\"filters\">";
  for (const Filter& filter : kFilters) {
    text +=
        std::string("<label><input type=\"checkbox\" checked data-kind=\"") +
        filter.name + "\"> " + filter.text + "</label> ";
  }
  text +=
      "<label><input type=\"checkbox\" id=\"only\"> only what went wrong "
      "<kbd>w</kbd></label> ";
  if (c.connections.size() > 1) {
    text +=
        "<label>connection <select id=\"connection\"><option value=\"\">all";
    for (size_t n = 0; n < c.connections.size(); ++n) {
      text += "<option value=\"" + std::to_string(n) + "\">" +
              EscapeXml(ConnectionName(t, c.connections[n]));
    }
    text += "</select></label> ";
  }
  return text +
         "<span class=\"keys\"><kbd>j</kbd> <kbd>k</kbd> next, previous; "
         "<kbd>n</kbd> <kbd>p</kbd> of what went wrong; <kbd>Esc</kbd> "
         "none</span></div>\n";
}

}  // namespace

std::string HtmlPage(const Timeline& t, const Conversation& c,
                     const Ladder& ladder) {
  std::string page =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src "
      "data:\">\n<link rel=\"icon\" href=\"data:,\">\n<title>" +
      EscapeXml(Title(t)) + "</title>\n<style>" + kPageStyle + LadderStyle() +
      "</style></head><body>\n<header><h1>" + EscapeXml(Title(t)) +
      "</h1>\n<p>" + CountsText(CountPackets(t)) + ", " +
      std::to_string(c.messages.size()) + " messages. From " +
      DateAndTime(t.first) +
      "; times at the labels are us since then. Bars are messages, from post "
      "or first packet to completion or acknowledgement.</p>\n";
  page += Notes(t, ladder) + Filters(t, c) + "</header>\n";
  page += absl::StrFormat(
      "<svg class=\"ladder\" id=\"ladder\" width=\"%.0f\" height=\"%.0f\" "
      "viewBox=\"0 0 %.0f %.0f\">%s\n%s</svg>\n",
      ladder.width, ladder.height, ladder.width, ladder.height, LadderMarkers(),
      ladder.body);
  page +=
      "<div id=\"tip\" role=\"status\"></div>\n<script "
      "type=\"application/json\" id=\"data\">" +
      ForScript(Data(t, c, ladder)) + "</script>\n<script>" + kPageScript +
      "</script>\n</body></html>\n";
  return page;
}

}  // namespace trace
