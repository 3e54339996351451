// A link that restores what is seen: the start of the episode, and who acted for how long since then.

async function squeeze(bytes, Stream) {
  const stream = new Blob([bytes]).stream().pipeThrough(new Stream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function toText(bytes) {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

function toBytes(text) {
  return Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (character) => character.charCodeAt(0));
}

export async function encodeLink(seen) {
  return toText(await squeeze(new TextEncoder().encode(JSON.stringify(seen)), CompressionStream));
}

// What a link stands for; null where it is no link of this page.
export async function decodeLink(hash) {
  try {
    const text = new TextDecoder().decode(await squeeze(toBytes(hash.replace(/^#/, "")), DecompressionStream));
    const seen = JSON.parse(text);
    return seen.v === 1 && Array.isArray(seen.segments) ? seen : null;
  } catch {
    return null;
  }
}

// Equal controls in a row are one segment.
export function addSegment(segments, control, steps) {
  const last = segments[segments.length - 1];
  if (last && JSON.stringify(last.control) === JSON.stringify(control)) last.steps += steps;
  else segments.push({ control: structuredClone(control), steps });
}
