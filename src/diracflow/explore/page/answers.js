// Requests to the server, and the decoding of its answers.

export async function asked(name, query) {
  const reply = await fetch(`/api/${name}?${query}`);
  if (!reply.ok) {
    const failure = await reply.json().catch(() => ({ error: reply.statusText }));
    throw new Error(failure.error);
  }
  return reply;
}

function unpacked(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let at = 4 + length;
  const take = (shape) => {
    const count = shape.reduce((a, b) => a * b, 1);
    const values = new Float32Array(buffer, at, count);
    at += 4 * count;
    return { shape, values };
  };
  return { header, take };
}

export async function picture(query) {
  const { header, take } = unpacked(await (await asked("picture", query)).arrayBuffer());
  const [learned, cloud] = [take(header.shape), take(header.cloud)];
  return { ...header, learned, cloud, exact: header.exact ? take(header.shape) : null };
}

export async function bridge(query) {
  const { header, take } = unpacked(await (await asked("bridge", query)).arrayBuffer());
  return { ...header, ...take(header.shape) };
}

export async function certificate(query) {
  return (await asked("certificate", query)).json();
}

// One request at a time; of the requests made meanwhile only the last is sent.
export class Latest {
  constructor(ask, done, failed) {
    Object.assign(this, { ask, done, failed, busy: false, waiting: null });
  }

  async put(query, stamp) {
    if (this.busy) {
      this.waiting = [query, stamp];
      return;
    }
    this.busy = true;
    try {
      const answer = await this.ask(query);
      this.done(answer, query, stamp);
    } catch (error) {
      this.failed(error, query);
    }
    this.busy = false;
    if (this.waiting) {
      const next = this.waiting;
      this.waiting = null;
      this.put(...next);
    }
  }
}
