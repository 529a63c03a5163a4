"""The links of the soak test: the commands for their two ends, their order,
and the expected reports.
"""

import time

# Statuses with which a link may break when the other end does not respond.
RETRY_EXCEEDED = 12
LIMIT = 20.0  # seconds, for everything that does not depend on a fault


class Link:
    """Two ends, each a process and its address. A link is made, used until
    something ends it, dropped at both ends, and made again."""

    def __init__(self, number, ends, reliable, shared, mtu):
        self.number = number
        self.ends = ends  # ((process, address), (process, address))
        self.reliable = reliable
        self.shared = shared
        self.mtu = mtu  # ibv_mtu
        self.generation = 0
        self.phase = "down"  # making, connecting, up, dropping, quiet
        self.at = [None, None]  # the last report of each end
        self.introductions = [None, None]
        self.was_quiet = False  # at both ends, when it was dropped
        self.since = 0.0  # of the phase
        self.again_at = 0.0  # when it may be made again
        self.work = [0, 0]  # work of each end in this generation
        self.worked_at = 0.0
        self.may_break_until = 0.0  # it may break until then
        self.may_stand_until = 0.0  # it may stand still until then

    def __str__(self):
        (a, at_a), (b, at_b) = self.ends
        kind = "RC" if self.reliable else "UC"
        return (f"link {self.number} ({kind}, {a.name} {at_a} - {b.name} "
                f"{at_b})")

    def end_of(self, process):
        return [end[0] for end in self.ends].index(process)

    def uses(self, process):
        return process in (self.ends[0][0], self.ends[1][0])

    def has_address(self, process_side, address):
        return any(p.side is process_side and a == address
                   for p, a in self.ends)

    def crosses(self):
        return self.ends[0][0].side is not self.ends[1][0].side

    def enter(self, phase):
        self.phase = phase
        self.since = time.monotonic()
        if phase == "up":
            self.worked_at = self.since


class Links:
    """All links. `report` is called for failures; `random` makes free choices.
    """

    def __init__(self, links, timeout, report, random):
        self.links = links
        self.timeout = timeout
        self.time_out = 4.096e-6 * 2 ** timeout  # seconds
        self.report = report
        self.random = random
        self.ending = False
        self.broken = self.made = self.verified = 0

    def tell(self, link, end, what, **more):
        process = link.ends[end][0]
        if process.running():
            process.tell(do=what, id=link.number, **more)

    def tick(self):
        now = time.monotonic()
        for link in self.links:
            if link.phase == "down" and not self.ending:
                if now >= link.again_at and all(
                        p.running() and not p.stopped for p, _ in link.ends):
                    self.make(link)
            elif link.phase in ("making", "connecting", "dropping"):
                if now > max(link.since, link.may_stand_until) + LIMIT:
                    self.report("stuck", f"{link}: {link.phase}, the ends have "
                                f"said {link.at}")
                    link.enter("failed")
            elif link.phase == "up":
                if now > max(link.worked_at, link.may_stand_until) + LIMIT:
                    self.report("stuck", f"{link}: nothing completes")
                    self.drop(link)

    def make(self, link):
        link.generation += 1
        link.at = [None, None]
        link.work = [0, 0]
        link.enter("making")
        for end, (_, address) in enumerate(link.ends):
            self.tell(link, end, "make", generation=link.generation,
                      local=address, reliable=link.reliable,
                      shared=link.shared, mtu=link.mtu, timeout=self.timeout)

    def drop(self, link):
        if link.phase in ("down", "dropping", "failed"):
            return
        link.was_quiet = link.at == ["quiet", "quiet"]
        link.enter("dropping")
        for end in (0, 1):
            if link.at[end] not in ("refused", "gone"):
                self.tell(link, end, "drop", generation=link.generation)
        self.see_whether_down(link)

    def see_whether_down(self, link):
        gone = ("dropped", "refused", "gone")
        if link.phase == "dropping" and all(a in gone for a in link.at):
            link.enter("down")
            link.again_at = time.monotonic() + self.random.uniform(0, 0.2)

    def on_end(self, process, patient):
        """A process has ended. The other ends of reliable links notice by
        themselves if `patient`, otherwise they are told."""
        for link in self.links:
            if not link.uses(process) or link.phase in ("down", "failed"):
                continue
            link.at[link.end_of(process)] = "gone"
            left = any(at != "gone" for at in link.at)
            if not (patient and left and link.reliable and link.phase == "up"):
                self.drop(link)
            self.see_whether_down(link)

    def on_statistics(self, process, said):
        for each in said["links"]:
            link = self.links[each["id"]]
            if each["generation"] != link.generation:
                continue
            end = link.end_of(process)
            work = each["completed"] + each["received"]
            if work != link.work[end]:
                link.work[end] = work
                link.worked_at = time.monotonic()

    def on_said(self, process, said):
        link = self.links[said["id"]]
        if said["generation"] != link.generation:
            return
        end = link.end_of(process)
        what = said["is"]
        if what == "mismatch":
            self.report("mismatch", f"{link}, at {process.name}: "
                        f"{said['text']}")
            return
        link.at[end] = what
        if what == "made":
            link.introductions[end] = said
            if link.phase == "making" and link.at == ["made", "made"]:
                self.connect(link)
        elif what == "connected":
            if link.phase == "connecting" and link.at == [what, what]:
                self.made += 1
                link.enter("up")
                for each in (0, 1):
                    self.tell(link, each, "start")
        elif what == "refused":
            if time.monotonic() > link.may_stand_until:
                self.report("refused", f"{link}, at {process.name}: error "
                            f"{said['error']}")
            if link.phase == "connecting":
                link.at[end] = "made"  # there is a link to drop
            self.drop(link)
            self.see_whether_down(link)
        elif what == "broke":
            self.on_broke(link, process, said)
        elif what == "dropped":
            self.on_dropped(link, end, said)

    def connect(self, link):
        link.enter("connecting")
        for end in (0, 1):
            other = link.introductions[1 - end]
            self.tell(link, end, "connect", remote=link.ends[1 - end][1],
                      peer=other["peer"], peer_key=other["peer_key"])

    def on_broke(self, link, process, said):
        if link.phase == "dropping":
            return
        self.broken += 1
        if said["code"] != RETRY_EXCEEDED:
            self.report("wrong completion", f"{link}, at {process.name}: "
                        f"{said['status']}, of request {said['request']}")
        elif time.monotonic() > link.may_break_until:
            self.report("broken", f"{link}, at {process.name}: "
                        f"{said['status']} without cause")
        self.drop(link)

    def on_dropped(self, link, end, said):
        link.introductions[end] = said
        self.see_whether_down(link)
        if not link.was_quiet or link.phase != "down":
            return
        a, b = link.introductions
        if link.reliable and "sent" in a and "sent" in b:
            self.verified += a["seen"] + b["seen"]
            if (a["sent"], b["sent"]) != (b["seen"], a["seen"]):
                self.report("mismatch", f"{link}: {a['sent']} and {b['sent']} "
                            f"messages sent, {b['seen']} and {a['seen']} came")
