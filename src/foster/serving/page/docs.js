// The server's own description of its routes, readable without anything from elsewhere.

const plain = (text = "") => text.replaceAll("`", "");

const lastPart = (reference) => reference.split("/").pop();

// A schema as the shape of an example.
function shape(schema, all, depth = 0) {
  if (!schema) return "any";
  if (schema.$ref) return shape(all[lastPart(schema.$ref)], all, depth);
  if (schema.anyOf) return schema.anyOf.map((one) => shape(one, all, depth)).join(" | ");
  if (schema.type === "array") {
    const inner = schema.prefixItems ? schema.prefixItems.map((one) => shape(one, all, depth)).join(", ") : shape(schema.items, all, depth);
    return `[${inner}${schema.prefixItems ? "" : ", …"}]`;
  }
  if (schema.type !== "object") return schema.format === "binary" ? "file" : (schema.type ?? "any");
  if (!schema.properties) return `{name: ${shape(schema.additionalProperties, all, depth)}, …}`;
  const indent = "  ".repeat(depth + 1);
  const rows = Object.entries(schema.properties).map(([name, one]) => `${indent}${name}: ${shape(one, all, depth + 1)}`);
  return `{\n${rows.join("\n")}\n${"  ".repeat(depth)}}`;
}

function curl(method, path, operation) {
  const parts = ["curl"];
  if (method !== "get") parts.push("-X", method.toUpperCase());
  const content = operation.requestBody?.content ?? {};
  if (content["application/json"]) parts.push("-H 'content-type: application/json'", `-d '{"label": "cat"}'`);
  else if (content["application/octet-stream"]) parts.push("--data-binary @photo.jpg");
  else if (content["multipart/form-data"]) parts.push("-F file=@photo.jpg", "-F label=cat");
  return `${parts.join(" ")} ${location.origin}${path}`;
}

function route(path, method, operation, all) {
  const section = element("section", "route");
  const title = element("h2");
  title.append(element("span", "", method.toUpperCase()), ` ${path}`);
  section.append(title, element("p", "", plain(operation.description)), element("pre", "", curl(method, path, operation)));
  if (operation.parameters?.length) {
    const list = element("ul");
    for (const { name, in: place, schema, description } of operation.parameters) {
      const row = element("li");
      row.append(element("code", "", name), ` (${place}, ${shape(schema, all)}) ${description ?? ""}`);
      list.append(row);
    }
    section.append(element("h3", "", "Parameters"), list);
  }
  for (const [status, answer] of Object.entries(operation.responses)) {
    const schema = answer.content?.["application/json"]?.schema;
    if (status === "default" || status === "422") continue;
    const kind = Object.keys(answer.content ?? {})[0] ?? "nothing";
    section.append(element("h3", "", `Answer ${status}`), element("pre", "", schema ? shape(schema, all) : kind));
  }
  return section;
}

askJson("/openapi.json").then(({ paths, info, components }) => {
  find("#about").textContent = plain(info.description);
  for (const [path, operations] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      find("#routes").append(route(path, method, operation, components.schemas));
    }
  }
}).catch((problem) => {
  find("#problem").hidden = false;
  find("#problem").textContent = problem.message;
});
