// Flow steering and its counters: ibv_create_flow(3), ibv_create_counters(3).
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {
namespace {

using transport::FlowCount;
using transport::FlowLayer;
using transport::FlowRule;
using transport::FlowSpec;

constexpr uint32_t kMaxCounterIndex = 1023;

// Builds a rule from its specs, one by one. Functions return 0 or an errno
// value.
class RuleBuilder {
 public:
  RuleBuilder(FlowRule* rule, Flow* flow) : rule_(*rule), flow_(*flow) {}

  // Adds the spec at `at`, and stores its length in `*size`.
  int Add(const uint8_t* at, size_t* size) {
    ibv_flow_spec spec;
    std::memcpy(&spec, at, sizeof(spec.hdr));
    *size = spec.hdr.size;
    if (*size < sizeof(spec.hdr)) return EINVAL;
    std::memcpy(&spec, at, std::min(*size, sizeof(spec)));
    return AddSpec(spec, *size);
  }

 private:
  int AddSpec(const ibv_flow_spec& spec, size_t size) {
    switch (Raw(spec.hdr.type)) {
      case IBV_FLOW_SPEC_ETH:
        return AddMatch(FlowLayer::kEthernet, spec.eth, size,
                        sizeof(ibv_flow_eth_filter));
      case IBV_FLOW_SPEC_IPV4:
        return AddMatch(FlowLayer::kIpv4, spec.ipv4, size,
                        sizeof(ibv_flow_ipv4_filter));
      case IBV_FLOW_SPEC_IPV4_EXT:
        return AddMatch(FlowLayer::kIpv4, spec.ipv4_ext, size,
                        sizeof(ibv_flow_ipv4_ext_filter));
      case IBV_FLOW_SPEC_IPV6:  // excludes the padding at its end
        return AddMatch(FlowLayer::kIpv6, spec.ipv6, size,
                        offsetof(ibv_flow_ipv6_filter, hop_limit) + 1);
      case IBV_FLOW_SPEC_TCP:
        return AddMatch(FlowLayer::kTcp, spec.tcp_udp, size,
                        sizeof(ibv_flow_tcp_udp_filter));
      case IBV_FLOW_SPEC_UDP:
        return AddMatch(FlowLayer::kUdp, spec.tcp_udp, size,
                        sizeof(ibv_flow_tcp_udp_filter));
      case IBV_FLOW_SPEC_ACTION_TAG:
        if (size != sizeof(spec.flow_tag)) return EINVAL;
        rule_.tag = spec.flow_tag.tag_id;
        return 0;
      case IBV_FLOW_SPEC_ACTION_DROP:
        if (size != sizeof(spec.drop)) return EINVAL;
        rule_.drop = true;
        return 0;
      case IBV_FLOW_SPEC_ACTION_COUNT:
        return size == sizeof(spec.flow_count)
                   ? AddCounters(Find(spec.flow_count.counters))
                   : EINVAL;
      default:  // tunnels, IPsec, inner headers
        return EOPNOTSUPP;
    }
  }

  // The members of the filter are the same bytes, in the same order, as those
  // of FlowSpec.
  template <typename Spec>
  int AddMatch(FlowLayer layer, const Spec& spec, size_t size, size_t bytes) {
    if (size != sizeof(spec) || Contradicts(layer)) return EINVAL;
    FlowSpec& match = rule_.specs.emplace_back();
    match.layer = layer;
    std::memcpy(match.value.data(), &spec.val, bytes);
    std::memcpy(match.mask.data(), &spec.mask, bytes);
    for (size_t i = 0; i < FlowSpec::kBytes; ++i) {
      match.value[i] &= match.mask[i];
    }
    return 0;
  }

  // Whether the rule would match two headers of the same layer.
  bool Contradicts(FlowLayer layer) const {
    constexpr int kDepth[transport::kFlowLayers] = {2, 3, 3, 4, 4};
    for (const FlowSpec& spec : rule_.specs) {
      if (kDepth[static_cast<size_t>(spec.layer)] ==
          kDepth[static_cast<size_t>(layer)]) {
        return true;
      }
    }
    return false;
  }

  int AddCounters(Counters* counters) {
    if (counters == nullptr || counters->owner != flow_.owner ||
        flow_.counters != nullptr) {
      return EINVAL;
    }
    flow_.counters = counters;
    rule_.counts.push_back(counters->flows);
    return 0;
  }

  FlowRule& rule_;
  Flow& flow_;
};

int CheckAttributes(const ibv_flow_attr& attr) {
  constexpr uint32_t kKnown =
      IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS;
  if (attr.comp_mask != 0 || attr.port != kPort || (attr.flags & ~kKnown) ||
      Raw(attr.type) < IBV_FLOW_ATTR_NORMAL ||
      Raw(attr.type) > IBV_FLOW_ATTR_SNIFFER) {
    return EINVAL;
  }
  // Outgoing packets are not steered here.
  return (attr.flags & IBV_FLOW_ATTR_FLAGS_EGRESS) != 0 ? EOPNOTSUPP : 0;
}

int Fill(const ibv_flow_attr& attr, Flow* flow) {
  FlowRule& rule = flow->rule;
  rule.kind = static_cast<transport::FlowKind>(attr.type);
  rule.priority = attr.priority;
  rule.dont_trap = (attr.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP) != 0;
  rule.counts.push_back(flow->count);
  RuleBuilder builder(&rule, flow);
  const auto* at = reinterpret_cast<const uint8_t*>(&attr) + sizeof(attr);
  for (int i = 0; i < attr.num_of_specs; ++i) {
    size_t size;
    if (const int error = builder.Add(at, &size)) return error;
    at += size;
  }
  // If several receivers get a packet, it cannot be dropped for all of them.
  return rule.drop && rule.kind != transport::FlowKind::kNormal ? EINVAL : 0;
}

}  // namespace

ibv_flow* CreateFlow(ibv_qp* ibv, ibv_flow_attr* attr) {
  return PointerCall([&]() -> ibv_flow* {
    Qp* qp = Find(ibv);
    if (qp == nullptr || attr == nullptr) return Fail(EINVAL);
    if (const int error = CheckAttributes(*attr)) return Fail(error);
    if (qp->pair->frame_destination() == nullptr) return Fail(EOPNOTSUPP);
    auto flow = std::make_unique<Flow>();
    flow->owner = qp->owner;
    flow->context = ibv->context;
    flow->pair = qp->pair;
    if (const int error = Fill(*attr, flow.get())) return Fail(error);
    flow->rule.destination = qp->pair->frame_destination();
    Context& context = *flow->owner;
    {
      std::lock_guard<std::mutex> lock(context.mutex);
      context.flows.insert(flow.get());
    }
    auto forget = absl::MakeCleanup([&] {
      std::lock_guard<std::mutex> lock(context.mutex);
      context.flows.erase(flow.get());
    });
    SetLive(flow.get(), true);
    auto hide = absl::MakeCleanup([&] { SetLive(flow.get(), false); });
    if (const absl::Status added =
            context.device->engine().AddFlow(&flow->rule);
        !added.ok()) {
      return Fail(rxe_user::ReportedErrno(added));
    }
    flow->pair->AddFlow();
    if (flow->counters != nullptr) ++flow->counters->users;
    Retain(&context);
    std::move(hide).Cancel();
    std::move(forget).Cancel();
    return flow.release();
  });
}

void EndFlow(Flow* flow) {
  if (flow->pair == nullptr) return;
  flow->owner->device->engine().RemoveFlow(&flow->rule);
  flow->pair->RemoveFlow();
  flow->pair.reset();
}

int DestroyFlow(ibv_flow* ibv) {
  return DestroyCall(ibv, [](Flow* flow) -> int {
    SetLive(flow, false);
    Context* context = flow->owner;
    {
      std::lock_guard<std::mutex> lock(context->mutex);
      context->flows.erase(flow);
    }
    EndFlow(flow);
    if (flow->counters != nullptr) --flow->counters->users;
    delete flow;
    Release(context);
    return 0;
  });
}

// --- Counters.

ibv_counters* CreateCounters(ibv_context* ibv, ibv_counters_init_attr* attr) {
  return PointerCall([&]() -> ibv_counters* {
    Context* context = Find(ibv);
    if (context == nullptr || attr == nullptr || attr->comp_mask != 0) {
      return Fail(EINVAL);
    }
    auto counters = std::make_unique<Counters>();
    counters->context = ibv;
    counters->owner = context;
    SetLive(counters.get(), true);
    Retain(context);
    return counters.release();
  });
}

int DestroyCounters(ibv_counters* ibv) {
  return DestroyCall(ibv, [](Counters* counters) -> int {
    if (counters->users > 0) return EBUSY;
    SetLive(counters, false);
    Delete(counters);
    return 0;
  });
}

// Without a flow, attaches to the flows that are created later with an action
// that names `ibv`, so it must come before the first of them. All counts that
// are attached to one index are summed.
int AttachCounters(ibv_counters* ibv, ibv_counter_attach_attr* attr,
                   ibv_flow* ibv_flow) {
  return ErrnoCall([&]() -> int {
    Counters* counters = Find(ibv);
    Flow* flow = ibv_flow != nullptr ? Find(ibv_flow) : nullptr;
    if (counters == nullptr || attr == nullptr || attr->comp_mask != 0 ||
        (ibv_flow != nullptr &&
         (flow == nullptr || flow->owner != counters->owner)) ||
        attr->index > kMaxCounterIndex) {
      return EINVAL;
    }
    Counters::Point point;
    switch (Raw(attr->counter_desc)) {
      case IBV_COUNTER_PACKETS:
        point.value = &FlowCount::packets;
        break;
      case IBV_COUNTER_BYTES:
        point.value = &FlowCount::bytes;
        break;
      default:
        return EOPNOTSUPP;
    }
    point.of = flow != nullptr ? flow->count : counters->flows;
    if (flow != nullptr) point.before = ((*point.of).*point.value).load();
    if (flow == nullptr && counters->users > 0) return EBUSY;
    std::lock_guard<std::mutex> lock(counters->mutex);
    if (counters->points.size() <= attr->index) {
      counters->points.resize(attr->index + 1);
    }
    counters->points[attr->index].push_back(point);
    return 0;
  });
}

int ReadCounters(ibv_counters* ibv, uint64_t* values, uint32_t count,
                 uint32_t flags) {
  return ErrnoCall([&]() -> int {
    Counters* counters = Find(ibv);
    if (counters == nullptr || values == nullptr ||
        (flags & ~uint32_t{IBV_READ_COUNTERS_ATTR_PREFER_CACHED}) != 0) {
      return EINVAL;
    }
    std::lock_guard<std::mutex> lock(counters->mutex);
    if (count > counters->points.size()) return EINVAL;
    for (uint32_t i = 0; i < count; ++i) {
      values[i] = 0;
      for (const Counters::Point& point : counters->points[i]) {
        values[i] += ((*point.of).*point.value).load() - point.before;
      }
    }
    return 0;
  });
}

}  // namespace verbs_api
