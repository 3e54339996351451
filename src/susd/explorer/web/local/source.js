// The runs of an atlas as the page's source.

import { LocalBackend, LocalRun } from "./backend.js";
import { RecordedBackend, RecordedRun } from "./recorded.js";

/** A source of PROTOCOL.md; every run is decoded when it is first shown. */
export function localSource({ runs }) {
  const made = new Map();
  const open = (index) => {
    if (!made.has(index)) made.set(index, runs[index].recordings ? new RecordedRun(runs[index]) : new LocalRun(runs[index]));
    return made.get(index);
  };
  return {
    runs: runs.map(({ hello }) => ({ name: hello.run.name })),
    connect: (index) => (runs[index].recordings ? new RecordedBackend(open(index)) : new LocalBackend(open(index))),
  };
}
