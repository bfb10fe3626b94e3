/** Texts from strangers. */

const unseen =
  // oxlint-disable-next-line no-control-regex -- these are what is taken out
  /[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F\u00AD\u200B-\u200F\u202A-\u202E\u2060-\u2064\u2066-\u206F\uFEFF\u{E0000}-\u{E007F}]/gu

/**
 * The text without what people do not see and machines obey: control characters but for line breaks and tabs, zero-width
 * and direction marks, and the tag characters.
 */
export function stripControls(text: string): string {
  return text.replace(unseen, '')
}
