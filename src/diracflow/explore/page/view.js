// The state of the page, and its conversion to and from an address.

export function first(model) {
  const { t, x0, params, start_time: s } = model.controls;
  return {
    t: t.value,
    x0: x0.map((row) => row.value),
    params: Object.fromEntries(params.map((row) => [row.name, row.value])),
    s: s ? s.value : null,
    pair: model.dim > 1 ? [1, 2] : null,
    kind: "section",
    show: new Set(model.exact ? ["exact", "difference"] : []),
    x1: null,
    box: null,
  };
}

// The query string of a request.
export function query(view, wanted = {}) {
  const fields = new URLSearchParams({ t: view.t, x0: view.x0 });
  for (const [name, value] of Object.entries(view.params)) fields.set(`p.${name}`, value);
  if (view.s !== null) fields.set("s", view.s);
  if (wanted.picture && view.pair) {
    fields.set("pair", view.pair);
    fields.set("kind", view.kind);
  }
  if (wanted.picture && view.box) fields.set("box", view.box.flat());
  if ((wanted.picture || wanted.bridge) && view.x1 && view.show.has("bridges")) fields.set("x1", view.x1);
  return fields.toString();
}

export function address(view) {
  const fields = new URLSearchParams(query(view, { picture: true }));
  if (view.x1) fields.set("x1", view.x1);
  fields.set("show", [...view.show].sort().join(" "));
  return `#${fields}`;
}

function numbers(text, count) {
  const found = (text || "").split(",").map(Number);
  return text && found.length === count && found.every(Number.isFinite) ? found : null;
}

// The state in an address; missing or invalid fields keep their initial values.
export function restored(model, hash) {
  const view = first(model);
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const one = (name) => numbers(fields.get(name), 1)?.[0];
  view.t = one("t") ?? view.t;
  view.x0 = numbers(fields.get("x0"), model.dim) ?? view.x0;
  for (const name of Object.keys(view.params)) view.params[name] = one(`p.${name}`) ?? view.params[name];
  if (view.s !== null) view.s = one("s") ?? view.s;
  if (view.pair) view.pair = numbers(fields.get("pair"), 2) ?? view.pair;
  if (["section", "marginal"].includes(fields.get("kind"))) view.kind = fields.get("kind");
  view.x1 = numbers(fields.get("x1"), model.dim);
  const box = numbers(fields.get("box"), view.pair ? 4 : 2);
  view.box = box && (view.pair ? [box.slice(0, 2), box.slice(2)] : [box]);
  if (fields.has("show")) view.show = new Set(fields.get("show").split(" ").filter(Boolean));
  return view;
}
