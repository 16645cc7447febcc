// Adds a button that copies to each block of text. Without this script the text is selected by hand.
for (const block of document.querySelectorAll(".copyable")) {
  const [label, text] = block.children;
  const what = label.textContent;
  const button = document.createElement("button");
  const say = words => {
    button.textContent = words;
    button.ariaLabel = words + ": " + what;
  };
  button.type = "button";
  say("Copy");
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(text);
    try {
      await navigator.clipboard.writeText(text.textContent);
      say("Copied");
    } catch {
      say(document.execCommand("copy") ? "Copied" : "Selected");
    }
    setTimeout(say, 2000, "Copy");
  });
  label.append(" ", button);
}
