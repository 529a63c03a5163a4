#include "verbs_api/librdmacm/private_data.h"

#include <algorithm>

namespace librdmacm {

bool FillAnswerData(const void* data, size_t length, std::span<uint8_t> out) {
  if (data == nullptr) length = 0;
  if (length > out.size()) return false;
  std::fill(out.begin(), out.end(), 0);
  const auto* bytes = static_cast<const uint8_t*>(data);
  std::copy(bytes, bytes + length, out.begin());
  return true;
}

bool FillRequestData(const Id& id, const rdma_conn_param& param,
                     std::span<uint8_t> out) {
  const wire::RdmaCmHeader header = {
      .ip_version = static_cast<uint8_t>(id.source.address.is_v4() ? 4 : 6),
      .source_port = id.source.port,
      .source = id.source.address,
      .destination = id.destination.address};
  wire::EmitRdmaCmHeader(header, out.data());
  out = out.subspan(wire::kRdmaCmHeaderSize);
  const std::vector<uint8_t>& first = id.endpoint.connect_data;
  if (first.size() > out.size()) return false;
  std::copy(first.begin(), first.end(), out.begin());
  return FillAnswerData(param.private_data, param.private_data_len,
                        out.subspan(first.size()));
}

}  // namespace librdmacm
