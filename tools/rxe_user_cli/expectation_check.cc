// Finds parts of an expectation that are always true or always false.
//
// A condition only compares values with numbers and with each other, so only
// the order of values and numbers matters. Every order occurs if each of the k
// values takes 0, each number of the condition, and the k numbers on either
// side of each of these.
#include <algorithm>
#include <set>

#include "tools/rxe_user_cli/expectation.h"

namespace rxe_user_cli {
namespace {

// The maximum number of assignments that are tried. A part that needs more is
// assumed not to be constant.
constexpr uint64_t kMaxTries = 200'000;

// What a condition depends on: a quantity, or the slowest completion.
struct Variable {
  bool is_time = false;
  Quantity quantity;
  WorkQueues queues = WorkQueues::kAll;  // for a time

  bool IsSame(const Variable& other) const {
    if (is_time != other.is_time) return false;
    return is_time ? queues == other.queues : quantity.IsSame(other.quantity);
  }
};

Variable TimeOf(const Condition& every) {
  Variable time;
  time.is_time = true;
  time.queues = every.queues;
  return time;
}

Variable ValueOf(const Quantity& quantity) {
  Variable value;
  value.quantity = quantity;
  return value;
}

struct Unknowns {
  std::vector<Variable> variables;
  std::set<uint64_t> counts;  // numbers that quantities are compared with
  std::set<uint64_t> times;

  size_t Find(const Variable& wanted) const {
    const auto found = std::find_if(
        variables.begin(), variables.end(),
        [&](const Variable& known) { return known.IsSame(wanted); });
    return static_cast<size_t>(found - variables.begin());
  }
  void Add(const Variable& variable) {
    if (Find(variable) == variables.size()) variables.push_back(variable);
  }
  void Add(const Quantity& quantity) {
    if (quantity.kind == Quantity::Kind::kNumber) {
      counts.insert(quantity.number);
    } else {
      Add(ValueOf(quantity));
    }
  }
};

void Collect(const Condition& condition, Unknowns* unknowns) {
  for (const Condition& part : condition.parts) Collect(part, unknowns);
  if (condition.kind == Condition::Kind::kCompare) {
    unknowns->Add(condition.left);
    unknowns->Add(condition.right);
  } else if (condition.kind == Condition::Kind::kEvery) {
    unknowns->Add(TimeOf(condition));
    unknowns->times.insert(static_cast<uint64_t>(condition.within));
  }
}

uint64_t ValueOf(const Quantity& quantity, const Unknowns& unknowns,
                 const std::vector<uint64_t>& values) {
  if (quantity.kind == Quantity::Kind::kNumber) return quantity.number;
  return values[unknowns.Find(ValueOf(quantity))];
}

bool Evaluate(const Condition& condition, const Unknowns& unknowns,
              const std::vector<uint64_t>& values) {
  const auto is_true = [&](const Condition& part) {
    return Evaluate(part, unknowns, values);
  };
  switch (condition.kind) {
    case Condition::Kind::kAnd:
      return std::all_of(condition.parts.begin(), condition.parts.end(),
                         is_true);
    case Condition::Kind::kOr:
      return std::any_of(condition.parts.begin(), condition.parts.end(),
                         is_true);
    case Condition::Kind::kNot:
      return !is_true(condition.parts[0]);
    case Condition::Kind::kEvery: {
      return values[unknowns.Find(TimeOf(condition))] <=
             static_cast<uint64_t>(condition.within);
    }
    case Condition::Kind::kCompare:
      break;
  }
  return Holds(ValueOf(condition.left, unknowns, values), condition.relation,
               ValueOf(condition.right, unknowns, values));
}

// Whether `b` counts everything that `a` counts.
bool IsPart(const Quantity& a, const Quantity& b) {
  if (a.kind != Quantity::Kind::kCompletions || b.kind != a.kind) return false;
  return (b.queues == WorkQueues::kAll || b.queues == a.queues) &&
         (b.status == Quantity::kAnyStatus || b.status == a.status);
}

bool CanBe(const Unknowns& unknowns, const std::vector<uint64_t>& values) {
  for (size_t a = 0; a < values.size(); ++a) {
    for (size_t b = 0; b < values.size(); ++b) {
      if (values[a] > values[b] && !unknowns.variables[a].is_time &&
          IsPart(unknowns.variables[a].quantity,
                 unknowns.variables[b].quantity)) {
        return false;
      }
    }
  }
  return true;
}

// The values to try for a variable. `least`: the least one.
std::vector<uint64_t> Candidates(const std::set<uint64_t>& numbers,
                                 uint64_t least, uint64_t spread) {
  std::set<uint64_t> all;
  const auto add = [&](uint64_t number) {
    for (uint64_t d = 0; d <= spread; ++d) {
      if (number >= least + d) all.insert(number - d);
      all.insert(number + d);
    }
  };
  add(least);
  for (const uint64_t number : numbers) add(std::max(number, least));
  return {all.begin(), all.end()};
}

// The value of the part if it is constant.
std::optional<bool> ConstantValue(const Condition& condition) {
  Unknowns unknowns;
  Collect(condition, &unknowns);
  const size_t count = unknowns.variables.size();
  const auto counts = Candidates(unknowns.counts, 0, count);
  const auto times = Candidates(unknowns.times, 1, count);
  uint64_t tries = 1;
  for (const Variable& variable : unknowns.variables) {
    tries *= variable.is_time ? times.size() : counts.size();
    if (tries > kMaxTries) return std::nullopt;
  }
  std::optional<bool> first;
  for (uint64_t i = 0; i < tries; ++i) {
    std::vector<uint64_t> values;
    uint64_t rest = i;
    for (const Variable& variable : unknowns.variables) {
      const auto& from = variable.is_time ? times : counts;
      values.push_back(from[rest % from.size()]);
      rest /= from.size();
    }
    if (!CanBe(unknowns, values)) continue;
    const bool value = Evaluate(condition, unknowns, values);
    if (first && *first != value) return std::nullopt;
    first = value;
  }
  return first;
}

}  // namespace

std::optional<ConstantPart> FindConstantPart(const Condition& condition) {
  for (const Condition& part : condition.parts) {
    if (auto constant = FindConstantPart(part)) return constant;
  }
  // `not` is constant if its part is.
  if (condition.kind == Condition::Kind::kNot) return std::nullopt;
  const std::optional<bool> value = ConstantValue(condition);
  if (!value) return std::nullopt;
  return ConstantPart{&condition, *value};
}

}  // namespace rxe_user_cli
