// The styles and the script of the page with the ladder (page.h).
#include "tools/trace/page.h"

namespace trace {

const char kPageStyle[] = R"(
body{font:13px system-ui,"DejaVu Sans",sans-serif;margin:14px;color:#0f172a;background:#fff}
h1{font-size:17px;margin:0 0 4px}p{margin:0 0 6px;color:#475569;max-width:80em}
.notes{margin:4px 0;padding-left:20px;color:#92400e;max-width:80em}
.filters label{margin-right:10px;white-space:nowrap}
.keys{color:#64748b}kbd{font:11px monospace;border:1px solid #cbd5e1;border-radius:3px;padding:0 3px}
header{position:sticky;top:0;background:#fffffff0;padding-bottom:6px;border-bottom:1px solid #e2e8f0}
#tip{position:fixed;right:14px;bottom:14px;width:400px;max-height:80vh;overflow:auto;background:#fff;border:1px solid #94a3b8;padding:8px 10px;font:11px "DejaVu Sans Mono",Menlo,Consolas,monospace;white-space:pre-wrap;box-shadow:0 4px 14px #0003;display:none}
.off,.hide-k .k,.hide-n .n,.hide-n .e,.hide-d .d,.hide-c .c,.hide-y .y,.hide-i .i,.hide-v .v,.only .p:not(.t),.only .b,.only .m:not(.f),.only .m+text,.only .q{display:none}
.p.sel path,.m.sel{stroke-width:4}.b.sel path{fill-opacity:.4}.m.sel{stroke-width:13}
.sel text{font-weight:700}.p.rel path{stroke-width:3}.rel text{text-decoration:underline}.m.rel{stroke-opacity:1}
)";

const char kPageScript[] = R"JS('use strict';
(() => {
const svg = document.getElementById('ladder'), tip = document.getElementById('tip');
const data = JSON.parse(document.getElementById('data').textContent);
// Rows: of packets [i, header, start, took, frame sent, frame received, message, answers, file, event, cause, waited];
// took: -1 if only the arrival is known. Of events [e, file, id, cause, time, qpn, fields]. Of messages [m, number, end,
// name, first PSN, last PSN, bytes, begin, done, polled, error, wr_id]. Times in ns. The elements are in the same order.
const byIndex = (rows) => new Map(rows.map((row) => [String(row[0]), row]));
const packets = byIndex(data.packets), events = byIndex(data.events), messages = byIndex(data.messages);
const toHex = (base64) => [...atob(base64)].map((c) => c.charCodeAt(0).toString(16).padStart(2, '0')).join('');
const num = (h, at, n) => parseInt(h.substr(at * 2, n * 2) || '0', 16);
const byPacket = new Map(), byEvent = new Map(), answered = new Map(), caused = new Map();
const note = (file, cause, g) => {
  if (!cause) return;
  const k = file + ':' + cause; caused.set(k, [...(caused.get(k) || []), g]);
};
[...svg.querySelectorAll('g.p,g.b')].forEach((g, n) => {
  const r = data.packets[n], i = String(r[0]), head = atob(r[1]);
  g.dataset.i = i;
  g.dataset.op = data.opcodes[head.charCodeAt(0)];
  g.dataset.psn = head.charCodeAt(9) << 16 | head.charCodeAt(10) << 8 | head.charCodeAt(11);
  byPacket.set(i, g);
  if (r[7] != null) { const k = String(r[7]); answered.set(k, [...(answered.get(k) || []), i]); }
  if (r[9]) byEvent.set(r[8] + ':' + r[9], g);
  if (r[10]) note(r[8], r[10], g);
});
[...svg.querySelectorAll('path.m')].forEach((e, n) => { e.dataset.m = data.messages[n][0]; });
for (const g of svg.querySelectorAll('g.v')) {
  const r = events.get(g.dataset.e); byEvent.set(r[1] + ':' + r[2], g); note(r[1], r[3], g);
}
const elements = [...svg.querySelectorAll('g.p,g.b,g.v')];

const span = (ns) => ns == null ? 'never' : Math.abs(ns) < 1e3 ? ns + ' ns' : Math.abs(ns) < 1e6 ? (ns / 1e3).toFixed(1) + ' us' : Math.abs(ns) < 1e9 ? (ns / 1e6).toFixed(3) + ' ms' : (ns / 1e9).toFixed(3) + ' s';
// --- Headers, in the order on the wire: InfiniBand Architecture Specification, volume 1.
const hex = (h, at, n) => '0x' + h.substr(at * 2, n * 2);
const SYN = ['ACK', 'RNR NAK', 'reserved', 'NAK'];
const NAK = ['PSN sequence error', 'invalid request', 'remote access error', 'remote operational error', 'invalid RD request'];
function headers(h, op) {
  const out = [], part = (name, section, at, n, fields) =>
    out.push(name + ' (' + section + ')  ' + h.substr(at * 2, n * 2).replace(/(..)/g, '$1 ') + '\n' + fields.map((f) => '  ' + f).join('\n'));
  const b1 = num(h, 1, 1);
  part('BTH', '9.2', 0, 12, ['opcode ' + hex(h, 0, 1) + ' ' + op, 'destination QP ' + hex(h, 5, 3), 'PSN ' + num(h, 9, 3),
    'P_Key ' + hex(h, 2, 2) + ', pad ' + (b1 >> 4 & 3) + (b1 & 128 ? ', solicited' : '') + (num(h, 8, 1) & 128 ? ', AckReq' : '')]);
  let at = 12; const o = num(h, 0, 1), t = o >> 5, x = o & 31;
  const has = (list) => list.includes(x);
  if (o === 0x81) return out;
  if (t === 5 && (x <= 12 || has([19, 20, 22, 23, 28, 29]))) { part('XRCETH', '14.3.1 (A14)', at, 4, ['SRQ ' + hex(h, at + 1, 3)]); at += 4; }
  if (t === 3) { part('DETH', '9.3.2', at, 8, ['Q_Key ' + hex(h, at, 4), 'source QP ' + hex(h, at + 5, 3)]); at += 8; }
  if (t !== 3 && x === 28) { part('FETH', 'A19', at, 4, ['placement and selectivity ' + hex(h, at, 4)]); at += 4; }
  if (t !== 3 && has([6, 10, 11, 12, 28, 29])) { part('RETH', '9.3.3', at, 16, ['virtual address ' + hex(h, at, 8), 'R_Key ' + hex(h, at + 8, 4), 'DMA length ' + num(h, at + 12, 4)]); at += 16; }
  if (t !== 3 && has([19, 20])) { part('AtomicETH', '9.3.4', at, 28, ['virtual address ' + hex(h, at, 8), 'R_Key ' + hex(h, at + 8, 4), 'swap or add ' + hex(h, at + 12, 8), 'compare ' + hex(h, at + 20, 8)]); at += 28; }
  if (t !== 3 && has([13, 15, 16, 17, 18])) {
    const s = num(h, at, 1), k = s >> 5 & 3, v = s & 31;
    part('AETH', '9.3.5; syndrome 9.7.5.2', at, 4, ['syndrome ' + hex(h, at, 1) + ' ' + SYN[k] + (k === 3 ? ': ' + (NAK[v] || 'reserved') : k === 1 ? ', timer code ' + v : ', credits code ' + v), 'MSN ' + num(h, at + 1, 3)]); at += 4;
  }
  if (t !== 3 && x === 18) { part('AtomicAckETH', '9.3.5.3', at, 8, ['original ' + hex(h, at, 8)]); at += 8; }
  if (has([3, 5, 9, 11])) { part('ImmDt', '9.3.6', at, 4, [hex(h, at, 4)]); at += 4; }
  if (has([22, 23])) { part('IETH', '9.3.7', at, 4, ['R_Key ' + hex(h, at, 4)]); at += 4; }
  return out;
}
function packet(g) {
  const r = packets.get(g.dataset.i), lines = [g.querySelector('text').textContent.trim()];
  if (g.dataset.n) lines.push('a band of ' + g.dataset.n + ' packets; this is the first');
  const arrived = r[3] === -1 ? r[2] : r[3] == null ? null : r[2] + r[3];
  if (r[3] !== -1) lines.push('sent      ' + span(r[2]) + (r[4] == null ? '' : '   frame ' + r[4]));
  if (arrived !== null) lines.push('received  ' + span(arrived) + (r[5] == null ? '' : '   frame ' + r[5]));
  if (arrived !== null && r[3] !== -1) lines.push('took      ' + span(r[3]) + (r[11] ? ': ' + span(r[3] - r[11]) + ' on the wire, ' + span(r[11]) + ' waiting for the process' : ''));
  if (r[6] != null) lines.push('message   ' + r[6]);
  const a = r[7] == null ? null : byPacket.get(String(r[7]));
  if (a) lines.push('answers   ' + a.querySelector('text').textContent.trim());
  return lines.join('\n') + '\n\n' + headers(toHex(r[1]), g.dataset.op).join('\n');
}
function event(g) {
  const r = events.get(g.dataset.e);
  return [g.dataset.event, 'time      ' + span(r[4]), ...(r[5] ? ['qp        0x' + r[5].toString(16)] : []), ...r[6].map((f) => f[0].padEnd(10) + ' ' + f[1])].join('\n');
}
function message(e) {
  const r = messages.get(e.dataset.m);
  return ['message ' + r[1] + ' of ' + r[2] + ': ' + r[3] + ', ' + r[6] + ' bytes', 'PSN       ' + r[4] + ' to ' + r[5], ...(r[11] ? ['wr_id     ' + r[11]] : []),
    'begin     ' + span(r[7]), 'done      ' + span(r[8]) + (r[8] == null ? '' : '   after ' + span(r[8] - r[7])), ...(r[9] == null ? [] : ['polled    ' + span(r[9]) + '   after ' + span(r[9] - r[8])]), ...(r[10] ? ['error     ' + r[10]] : [])].join('\n');
}
let selected = null, pinned = false;
function select(e) {
  if (e === selected) return;
  for (const x of svg.querySelectorAll('.sel,.rel')) x.classList.remove('sel', 'rel');
  selected = e; tip.style.display = e ? 'block' : 'none';
  if (!e) return;
  e.classList.add('sel');
  let related = [];
  if (e.dataset.m) {
    tip.textContent = message(e);
  } else if (e.dataset.e) {
    const r = events.get(e.dataset.e);
    related = [byEvent.get(r[1] + ':' + r[3]), ...(caused.get(r[1] + ':' + r[2]) || [])];
    tip.textContent = event(e);
  } else {
    const i = e.dataset.i, r = packets.get(i);
    related = [byPacket.get(String(r[7])), ...(answered.get(i) || []).map((k) => byPacket.get(k))];
    if (r[9]) related.push(byEvent.get(r[8] + ':' + r[10]), ...(caused.get(r[8] + ':' + r[9]) || []));
    tip.textContent = packet(e);
  }
  for (const x of related) if (x && x !== e) x.classList.add('rel');
}
// --- The mouse: what is under it, or the nearest line.
let lines = null;
function measure() {
  lines = [];
  for (const g of elements) {
    const m = /M([\d.]+) ([\d.]+)([lL])([-\d.]+) ([-\d.]+)/.exec(g.querySelector('path').getAttribute('d'));
    if (m) lines.push(m[3] === 'l' ? [g, +m[1], +m[2], +m[1] + +m[4], +m[2] + +m[5]] : [g, +m[1], +m[2], +m[4], +m[5]]);
  }
}
const shown = (g) => g.getClientRects().length > 0;
function nearest(x, y) {
  if (!lines) measure();
  let best = null, least = 6;
  for (const [g, x0, y0, x1, y1] of lines) {
    if (y < Math.min(y0, y1) - 6 || y > Math.max(y0, y1) + 6 || x < Math.min(x0, x1) || x > Math.max(x0, x1)) continue;
    const d = Math.abs(y0 + (y1 - y0) * (x - x0) / (x1 - x0 || 1) - y);
    if (d < least && shown(g)) { least = d; best = g; }
  }
  return best;
}
svg.addEventListener('mousemove', (e) => {
  if (pinned) return;
  const on = e.target.closest('g.p,g.b,g.v,path.m'), box = svg.getBoundingClientRect();
  select(on || nearest(e.clientX - box.left, e.clientY - box.top));
});
svg.addEventListener('click', () => { pinned = selected !== null && !pinned; });
// --- Filters.
for (const box of document.querySelectorAll('[data-kind]')) {
  box.addEventListener('change', () => svg.classList.toggle('hide-' + box.dataset.kind, !box.checked));
}
const only = document.getElementById('only'), connection = document.getElementById('connection');
only.addEventListener('change', () => svg.classList.toggle('only', only.checked));
if (connection) connection.addEventListener('change', () => {
  for (const e of svg.querySelectorAll('[data-c]')) e.classList.toggle('off', connection.value !== '' && e.dataset.c !== connection.value);
});
// --- Keys.
function step(by, wrong) {
  let n = elements.indexOf(selected);
  if (n < 0 && by < 0) n = elements.length;
  for (n += by; n >= 0 && n < elements.length; n += by) {
    const g = elements[n];
    if ((!wrong || g.classList.contains('t') || g.classList.contains('v')) && shown(g)) {
      select(g); pinned = true; g.scrollIntoView({block: 'center'}); return;
    }
  }
}
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.altKey || e.metaKey || /^(INPUT|SELECT)$/.test(e.target.tagName) && e.key !== 'Escape') return;
  const keys = {j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1), n: () => step(1, true), p: () => step(-1, true),
    w: () => only.click(), Escape: () => { pinned = false; select(null); }};
  if (keys[e.key]) { keys[e.key](); e.preventDefault(); }
});
})();
)JS";

}  // namespace trace
